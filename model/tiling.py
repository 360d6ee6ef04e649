"""(width, height) -> windows and the cells each owns; windows -> tiles.

An axis that fits into a tile is one span, padded to the network's multiple. A longer one is cut into the
fewest equal spans that fit and overlap by two halos; ownership changes in the middle of an overlap, so that a
cell is always counted by a window that sees at least `halo` pixels around it (or the image's own edge). Spans
start at multiples of the network's deepest stride: a tile sees the same pooling grid as the whole image.
"""

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

Tile = NDArray[np.uint8]  # [height, width, 3], RGB


@dataclass(frozen=True, slots=True)
class Window:
    """A rectangle in pixels, perhaps reaching past the image, and the cells of the image that it owns."""

    x: int
    y: int
    width: int
    height: int
    rows: tuple[int, int]  # half-open
    columns: tuple[int, int]  # half-open
    cell: int = 8

    def within(self, width: int, height: int) -> tuple[int, int, int, int]:
        """(x, y, width, height) of what lies inside an image of that size."""
        return self.x, self.y, min(self.width, width - self.x), min(self.height, height - self.y)

    @property
    def owned(self) -> tuple[slice, slice]:
        """The owned cells in the image's maps."""
        return slice(*self.rows), slice(*self.columns)

    @property
    def inner(self) -> tuple[slice, slice]:
        """The owned cells in this window's own maps."""
        top, left = self.y // self.cell, self.x // self.cell
        rows, columns = (
            (self.rows[0] - top, self.rows[1] - top),
            (self.columns[0] - left, self.columns[1] - left),
        )
        return slice(*rows), slice(*columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of this window's own maps."""
        return self.height // self.cell, self.width // self.cell


@dataclass(frozen=True, slots=True)
class _Span:
    """A window along one axis: pixels from `start`, `length` of them; owned cells half-open."""

    start: int
    length: int
    cells: tuple[int, int]


def cells_shape(width: int, height: int, cell: int = 8) -> tuple[int, int]:
    """(rows, columns) of an image's maps; a cell cut by the image's edge counts."""
    return -(-height // cell), -(-width // cell)


def windows(width: int, height: int, tile: int, halo: int, cell: int = 8, multiple: int = 32) -> tuple[Window, ...]:
    """All windows of an image, row by row; equal in size, so that they batch."""
    down, across = _spans(height, tile, halo, cell, multiple), _spans(width, tile, halo, cell, multiple)
    return tuple(
        Window(column.start, row.start, column.length, row.length, row.cells, column.cells, cell)
        for row, column in product(down, across)
    )


def cut(image: Tile, window: Window, padding_colour: tuple[int, int, int]) -> Tile:
    """The window's pixels [height, width, 3]: a view where it lies inside the image, else padded."""
    inside = image[window.y : window.y + window.height, window.x : window.x + window.width]
    return padded(inside, window, padding_colour)


def padded(inside: Tile, window: Window, padding_colour: tuple[int, int, int]) -> Tile:
    """What of a window lies inside the image -> the whole window."""
    if inside.shape[:2] == (window.height, window.width):
        return inside
    tile = np.empty((window.height, window.width, 3), np.uint8)
    tile[:] = padding_colour
    tile[: inside.shape[0], : inside.shape[1]] = inside
    return tile


def _spans(length: int, tile: int, halo: int, cell: int, multiple: int) -> list[_Span]:
    blocks, limit = -(-length // multiple), tile // multiple  # from here on in blocks of `multiple` pixels
    cells = -(-length // cell)
    if blocks <= limit:
        return [_Span(0, blocks * multiple, (0, cells))]
    # Ownership changes between two cells, so the halo on either side is made of whole cells.
    overlap = -(-2 * (-(-halo // cell) * cell) // multiple)
    if limit <= overlap:
        raise ValueError(f"a halo of {halo} leaves nothing of a tile of {tile}")
    number = -(-(blocks - overlap) // (limit - overlap))
    side = -(-(blocks + (number - 1) * overlap) // number)
    starts = [index * (blocks - side) // (number - 1) for index in range(number)]
    middles = [(left + side + right) * multiple // 2 // cell for left, right in pairwise(starts)]
    owned = pairwise([0, *middles, cells])
    return [_Span(start * multiple, side * multiple, cells) for start, cells in zip(starts, owned, strict=True)]
