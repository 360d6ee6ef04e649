"""The shape policy: which shapes of tiles and batches reach the device."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class ShapePolicy:
    """The CPU takes every tile as it is, one at a time. CUDA pays for each new shape: there sides are rounded
    up to a few buckets, and only tiles of one bucket share a batch, itself of a few sizes.
    """

    sides: tuple[int, ...] = ()  # rising; empty: exact shapes
    batch_sizes: tuple[int, ...] = (1,)

    @classmethod
    def for_cuda(cls, tile: int, max_batch: int) -> Self:
        sides = tuple(side for side in (256, 512, 768, 1024) if side < tile)
        sizes = tuple(size for size in (1, 2, 4, 8, 16, 32) if size <= max_batch)
        return cls((*sides, tile), sizes)

    def padded_shape(self, height: int, width: int) -> tuple[int, int]:
        return self._side(height), self._side(width)

    def batch_size(self, tiles: int) -> int:
        """The smallest batch that holds so many tiles."""
        return next(size for size in self.batch_sizes if size >= tiles)

    def warm_up_shapes(self, tile: int) -> Iterator[tuple[int, int, int]]:
        """(n, height, width) of every bucket, the largest first so that memory is claimed once."""
        sides = self.sides[::-1] or (min(tile, 256),)
        for size in self.batch_sizes[::-1]:
            for height in sides:
                for width in sides:
                    yield size, height, width

    def _side(self, side: int) -> int:
        # A tile larger than the artifact's (nobody cuts one) runs in its own shape rather than not at all.
        return next((bucket for bucket in self.sides if bucket >= side), side)
