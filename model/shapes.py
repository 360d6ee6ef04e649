"""The shape policy: the shapes of tiles and batches that the device gets."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Self

MAX_BATCH_PIXELS = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ShapePolicy:
    """On the CPU every tile runs alone in its own shape. On a GPU each new shape is expensive: sides are rounded up
    to a few buckets, and tiles of one bucket share a batch of bounded size and pixels.
    """

    sides: tuple[int, ...] = ()  # increasing; empty: exact shapes
    batch_sizes: tuple[int, ...] = (1,)
    max_pixels: int = MAX_BATCH_PIXELS

    @classmethod
    def bucketed(cls, tile: int, max_batch: int, max_pixels: int = MAX_BATCH_PIXELS) -> Self:
        sides = (*range(256, tile, 256), tile)
        sizes = tuple(size for size in (1, 2, 4, 8, 16, 32) if size <= max_batch)
        return cls(sides, sizes, max_pixels)

    def padded_shape(self, height: int, width: int) -> tuple[int, int]:
        return self._side(height), self._side(width)

    def batch_size(self, tiles: int) -> int:
        """The smallest batch size for this number of tiles."""
        return next(size for size in self.batch_sizes if size >= tiles)

    def most_tiles(self, height: int, width: int) -> int:
        """The largest batch size for a padded shape, limited by pixels to bound memory; at least 1."""
        fitting = [size for size in self.batch_sizes if size * height * width <= self.max_pixels]
        return fitting[-1] if fitting else 1

    def warm_up_shapes(self, tile: int) -> Iterator[tuple[int, int, int]]:
        """(n, height, width) of every bucket, the largest first, so that memory is allocated once."""
        sides = self.sides[::-1] or (min(tile, 256),)
        for size, height, width in product(self.batch_sizes[::-1], sides, sides):
            if size <= self.most_tiles(height, width):
                yield size, height, width

    def _side(self, side: int) -> int:
        # A tile larger than the largest bucket runs in its own shape.
        return next((bucket for bucket in self.sides if bucket >= side), side)
