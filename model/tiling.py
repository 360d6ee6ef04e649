"""(width, height) -> windows and the cells that each owns; windows -> tiles.

An axis that fits into a tile is one span, padded to a multiple of the network's stride. A longer axis is divided into
the smallest number of equal spans that overlap by two halos. Ownership changes in the middle of an overlap, so that
each cell is counted by a window that sees at least `halo` pixels around it (or the edge of the image). Spans start at
multiples of the network's deepest stride: a tile has the same pooling grid as the whole image.
"""

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

Tile = NDArray[np.uint8]  # [height, width, 3], RGB


@dataclass(frozen=True, slots=True)
class Window:
    """A rectangle in pixels, which may extend beyond the image, and the cells of the image that it owns."""

    x: int
    y: int
    width: int
    height: int
    rows: tuple[int, int]  # half-open
    columns: tuple[int, int]  # half-open
    cell: int

    def within(self, width: int, height: int) -> tuple[int, int, int, int]:
        """(x, y, width, height) of the part inside an image of that size."""
        return self.x, self.y, min(self.width, width - self.x), min(self.height, height - self.y)

    @property
    def owned(self) -> tuple[slice, slice]:
        """The owned cells, as slices of the maps of the image."""
        return slice(*self.rows), slice(*self.columns)

    @property
    def inner(self) -> tuple[slice, slice]:
        """The owned cells, as slices of the maps of this window."""
        top, left = self.y // self.cell, self.x // self.cell
        rows, columns = (
            (self.rows[0] - top, self.rows[1] - top),
            (self.columns[0] - left, self.columns[1] - left),
        )
        return slice(*rows), slice(*columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the maps of this window."""
        return self.height // self.cell, self.width // self.cell


@dataclass(frozen=True, slots=True)
class _Span:
    """A window along one axis: `length` pixels from `start`; owned cells as a half-open range."""

    start: int
    length: int
    cells: tuple[int, int]


def cells_shape(width: int, height: int, cell: int) -> tuple[int, int]:
    """(rows, columns) of the maps of an image, including cells that the edge of the image cuts."""
    return -(-height // cell), -(-width // cell)


def windows(width: int, height: int, tile: int, halo: int, cell: int, multiple: int = 32) -> tuple[Window, ...]:
    """All windows of an image, row by row; of equal size, so that they can share batches."""
    down, across = _spans(height, tile, halo, cell, multiple), _spans(width, tile, halo, cell, multiple)
    return tuple(
        Window(column.start, row.start, column.length, row.length, row.cells, column.cells, cell)
        for row, column in product(down, across)
    )


def windows_of(
    box: tuple[int, int, int, int],
    size: tuple[int, int],
    tile: int,
    halo: int,
    cell: int,
    multiple: int = 32,
    margin: int = 2,
) -> tuple[Window, ...]:
    """The windows of a box (x, y, width, height) of an image of `size` (width, height), with a halo around the box.

    They own the cells of the box, and `margin` cells around it: whoever resamples the maps needs the next cells too.
    """
    x, y, width, height = box
    columns = _owned(x, width, size[0], cell, margin)
    rows = _owned(y, height, size[1], cell, margin)
    left, right = _outer(columns, size[0], halo, cell, multiple)
    top, bottom = _outer(rows, size[1], halo, cell, multiple)
    found = []
    for window in windows(right - left, bottom - top, tile, halo, cell, multiple):
        own_rows = _clipped(window.rows, top // cell, rows)
        own_columns = _clipped(window.columns, left // cell, columns)
        if own_rows and own_columns:
            place = (left + window.x, top + window.y, window.width, window.height)
            found.append(Window(*place, own_rows, own_columns, cell))
    return tuple(found)


def cut(image: Tile, window: Window, padding_colour: tuple[int, int, int]) -> Tile:
    """The pixels of the window [height, width, 3]: a view if it lies inside the image, else a padded copy."""
    inside = image[window.y : window.y + window.height, window.x : window.x + window.width]
    return padded(inside, window, padding_colour)


def padded(inside: Tile, window: Window, padding_colour: tuple[int, int, int]) -> Tile:
    """Pad the part of a window that lies inside the image to the whole window."""
    if inside.shape[:2] == (window.height, window.width):
        return inside
    height, width = inside.shape[:2]
    tile = margins(window, width, height, padding_colour)
    tile[:height, :width] = inside
    return tile


def margins(window: Window, width: int, height: int, padding_colour: tuple[int, int, int]) -> Tile:
    """A tile with the padding around a part of `width` x `height` pixels, which is yet to be filled in."""
    tile = np.empty((window.height, window.width, 3), np.uint8)
    tile[:height, width:] = padding_colour  # the margins alone: filling a whole tile costs a fifth of the host's work
    tile[height:] = padding_colour
    return tile


def _spans(length: int, tile: int, halo: int, cell: int, multiple: int) -> list[_Span]:
    blocks, limit = -(-length // multiple), tile // multiple  # from here on in blocks of `multiple` pixels
    cells = -(-length // cell)
    if blocks <= limit:
        return [_Span(0, blocks * multiple, (0, cells))]
    # Ownership changes between two cells, so the halo on either side is made of whole cells.
    overlap = -(-2 * (-(-halo // cell) * cell) // multiple)
    if limit <= overlap:
        raise ValueError(f"a halo of {halo} leaves no cells of a tile of {tile}")
    number = -(-(blocks - overlap) // (limit - overlap))
    side = -(-(blocks + (number - 1) * overlap) // number)
    starts = [index * (blocks - side) // (number - 1) for index in range(number)]
    middles = [(left + side + right) * multiple // 2 // cell for left, right in pairwise(starts)]
    owned = pairwise([0, *middles, cells])
    return [_Span(start * multiple, side * multiple, cells) for start, cells in zip(starts, owned, strict=True)]


def _outer(cells: tuple[int, int], side: int, halo: int, cell: int, multiple: int) -> tuple[int, int]:
    """(first, end) pixel of an axis around half-open cells: on the multiple, unless the image's edge comes first."""
    first = max(0, cells[0] * cell - halo) // multiple * multiple
    return first, min(side, -(-(cells[1] * cell + halo) // multiple) * multiple)


def _owned(start: int, length: int, side: int, cell: int, margin: int) -> tuple[int, int]:
    return max(0, start // cell - margin), min(-(-side // cell), -(-(start + length) // cell) + margin)


def _clipped(cells: tuple[int, int], offset: int, limits: tuple[int, int]) -> tuple[int, int] | None:
    """Half-open cells moved by an offset, within the limits; None where nothing is left."""
    first, end = max(cells[0] + offset, limits[0]), min(cells[1] + offset, limits[1])
    return (first, end) if first < end else None
