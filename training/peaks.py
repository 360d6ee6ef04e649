"""A count map -> points, one for each person that it counts, to be corrected by hand as labels.

The densest spot gives the first point: one person's worth of the map is taken away around it, from near to far, and
the point lies at the centre of what was taken. This repeats until nobody is left, so there are as many points as the
map counts people, and they are as dense as the map says.
"""

import math

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
REACH = 6  # cells around a spot from which one person is taken
EDGE = REACH + 1  # cells of padding, so that every spot has its whole surroundings
SIDE = 2 * REACH + 1
_ROWS, _COLUMNS = (axis.ravel() - REACH for axis in np.mgrid[0:SIDE, 0:SIDE])
_NEAR_TO_FAR = np.argsort(_ROWS**2 + _COLUMNS**2, kind="stable")
DOWN, RIGHT = _ROWS[_NEAR_TO_FAR], _COLUMNS[_NEAR_TO_FAR]  # the surroundings of a spot


def points_of(count_map: NDArray[np.floating], cell: int, width: int, height: int) -> Values:
    """[people, 2] as x, y in pixels of an image of `width` x `height`; as many as the map counts, rounded."""
    left = np.pad(np.maximum(count_map, 0).astype(np.float64), EDGE)
    around = np.zeros(count_map.shape)
    _update(around, left, 0, 0, max(around.shape, default=0))
    places = [_take(left, around) for _ in range(round(float(left.sum())))]
    points = _apart((np.array(places).reshape(-1, 2) + 0.5) * cell, cell)
    return np.clip(points, 0, (width, height))


def _take(left: Values, around: Values) -> tuple[float, float]:
    """Take one person away around the densest spot; the column and row of the centre, in cells."""
    row, column = (int(index) for index in np.unravel_index(int(around.argmax()), around.shape))
    rows, columns = row + EDGE + DOWN, column + EDGE + RIGHT
    gathered = np.minimum(np.cumsum(left[rows, columns]), 1.0)
    taken = np.diff(gathered, prepend=0.0)
    left[rows, columns] -= taken
    _update(around, left, row, column, REACH + 1)
    return column + float(taken @ RIGHT) / float(gathered[-1]), row + float(taken @ DOWN) / float(gathered[-1])


def _update(around: Values, left: Values, row: int, column: int, reach: int) -> None:
    """The people in each cell and its eight neighbours, anew for the cells within `reach` of a spot."""
    top, start = max(0, row - reach), max(0, column - reach)
    part = around[top : row + reach + 1, start : column + reach + 1]
    height, width = part.shape
    part[:] = 0
    for down in range(EDGE - 1, EDGE + 2):
        for right in range(EDGE - 1, EDGE + 2):
            part += left[top + down : top + down + height, start + right : start + right + width]


def _apart(points: Values, cell: int) -> Values:
    """Points at one place, as several people in one cell give, side by side within the cell."""
    if not len(points):
        return points
    _, group, sizes = np.unique(points.round(3), axis=0, return_inverse=True, return_counts=True)
    placed = points.copy()
    for index in np.flatnonzero(sizes > 1):
        members = np.flatnonzero(group.ravel() == index)
        side = math.ceil(math.sqrt(len(members)))
        down, right = np.divmod(np.arange(len(members)), side)
        placed[members] += (np.stack([right, down], axis=1) + 0.5) * (cell / side) - cell / 2
    return placed
