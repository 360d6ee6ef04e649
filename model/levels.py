"""How much larger each block is looked at again: blocks that keep about the same detail share one look."""

import math

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Scales
from uepnet.model.detail import Ends, Spectra, ends
from uepnet.model.regions import Mask

REACH = 2  # blocks on each side whose detail tells about a block: a single patch may be flat
LEAST = 9  # blocks that tell; where there are fewer within reach, it grows
SPREAD = 1.25  # of detail within a look, largest over smallest


def next_looks(scale: float, wanted: Mask, energy: Spectra, scales: Scales) -> list[tuple[float, Mask]]:
    """(scale, blocks) of the next looks, coarse to fine; each wanted block is in one of them at most.

    A look is `step` times as large as this one, but no larger than the detail of its blocks is worth. `energy`: the
    spectra of the wanted blocks, row by row. A block whose detail is worth no larger look is in none.
    """
    step = scale * scales.step
    own = scales.finest * ends(energy)
    # A place that is sharp by itself goes on whatever lies around it: large blocks may hold more than one picture.
    worth = np.where(own >= step, step, np.minimum(_local(own, wanted), step))
    rows, columns = np.nonzero(wanted)
    looks: dict[float, Mask] = {}
    for group in _groups(worth):
        larger = min(step, scales.finest * float(ends(energy[group].sum(axis=0, keepdims=True))[0]))
        if larger >= scale * scales.smallest_step:
            looks.setdefault(larger, np.zeros_like(wanted))[rows[group], columns[group]] = True
    return sorted(looks.items(), key=lambda look: look[0])


def _local(own: Ends, wanted: Mask) -> Ends:
    """For each wanted block the median of those around it: it forgets odd patches and keeps the edges of regions."""
    grid = np.full(wanted.shape, np.nan)
    grid[wanted] = own
    found = []
    for y, x in np.argwhere(wanted):
        reach = REACH
        while True:
            near = grid[max(0, y - reach) : y + reach + 1, max(0, x - reach) : x + reach + 1]
            values = np.sort(near[~np.isnan(near)])
            if len(values) >= LEAST or reach >= max(wanted.shape):
                found.append(values[len(values) // 2])
                break
            reach *= 2
    return np.array(found)


def _groups(worth: Ends) -> list[NDArray[np.int64]]:
    """The indices of values that lie within `SPREAD` of each other: few groups, equally wide."""
    low, high = float(worth.min()), float(worth.max())
    number = max(1, math.ceil(math.log(high / low) / math.log(SPREAD) - 1e-9))
    if number == 1:
        return [np.arange(len(worth))]
    group = np.minimum((np.log(worth / low) / math.log(high / low) * number).astype(np.int64), number - 1)
    return [np.flatnonzero(group == index) for index in np.unique(group)]
