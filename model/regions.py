"""Blocks of a picture that are wanted -> few rectangles that cover them, cheap to run with a halo around each."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]  # [rows, columns] of blocks
Box = tuple[int, int, int, int]  # x, y, width, height


def covering(wanted: Mask, halo: float) -> list[Box]:
    """Rectangles in blocks that do not overlap and cover every wanted block; `halo` is in blocks.

    A rectangle costs its area with the halo. It is split in two, each half shrunk to what is wanted in it, wherever
    that costs less than the whole: far groups get rectangles of their own, near ones share one.
    """
    return list(_split(wanted, 0, 0, halo))


def _split(wanted: Mask, top: int, left: int, halo: float) -> Iterator[Box]:
    inner = _bounds(wanted)
    if inner is None:
        return
    x, y, width, height = inner
    wanted = wanted[y : y + height, x : x + width]
    cut = _best_cut(wanted, halo)
    if cut is None:
        yield left + x, top + y, width, height
        return
    axis, at = cut
    first, second = np.split(wanted, [at], axis)
    yield from _split(first, top + y, left + x, halo)
    yield from _split(second, top + y + at * (axis == 0), left + x + at * (axis == 1), halo)


def _best_cut(wanted: Mask, halo: float) -> tuple[int, int] | None:
    """(axis, position) of the cut that saves most; None where none saves anything."""
    rows, columns = wanted.shape
    least, best = _cost(rows, columns, halo), None
    for axis in (0, 1):
        for at in range(1, wanted.shape[axis]):
            halves = (_bounds(half) for half in np.split(wanted, [at], axis))
            cost = sum(_cost(half[3], half[2], halo) for half in halves if half is not None)
            if cost < least - 1e-9:
                least, best = cost, (axis, at)
    return best


def _cost(rows: int, columns: int, halo: float) -> float:
    return (rows + 2 * halo) * (columns + 2 * halo)


def _bounds(wanted: Mask) -> Box | None:
    """The smallest rectangle that holds what is wanted."""
    rows, columns = np.flatnonzero(wanted.any(axis=1)), np.flatnonzero(wanted.any(axis=0))
    if not rows.size:
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1] - columns[0]) + 1, int(rows[-1] - rows[0]) + 1
