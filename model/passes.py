"""Scales chosen from the picture: passes from coarse to fine, and which pass counts which part.

The first pass looks at the whole picture, made small. The picture is divided into blocks; what the network found in
a block tells whether its people are too small at this scale, and such blocks are looked at again, larger. A pass
sees every block of the same crowd at the same size in pixels, however many pixels the picture came with; the passes
end where heads are large enough or the picture has no more detail. The finest pass that looked at a block counts it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Scales
from uepnet.model.decode import Counts
from uepnet.model.detail import Spectra
from uepnet.model.levels import next_looks
from uepnet.model.regions import Box, Mask, covering

Size = tuple[int, int]  # width, height
AS_GOOD = 0.01  # a difference in size by so small a share changes counts by a quarter of a percent


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What the network found in a picture at one size; maps [rows, columns] of that size's cells, zero where it did
    not look."""

    counts: Counts
    variance: Counts | None  # None where the decoding gives none
    occupied: Mask
    densest: Mask  # cells in the densest class that the model knows
    classes: tuple[NDArray[np.uint8], ...] = ()  # the class map of each head
    familiarity: Counts | None = None  # None where the model has none


# Centres (x, y) of blocks, in pixels of the picture -> the spectra there, which tell how much detail there is.
Detail = Callable[[Sequence[tuple[float, float]]], Spectra]
# (size of the whole picture, what of it to look at, in pixels of that size) -> what is there.
Look = Callable[[Size, Sequence[Box]], Answer]


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    size: Size  # of the whole picture, in this pass
    boxes: tuple[Box, ...]  # what it looked at, in pixels of `size`
    answer: Answer


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    passes: tuple[Pass, ...]
    owner: NDArray[np.uint8]  # [rows, columns] of the finest blocks: the pass that counts each


def first_size(width: int, height: int, scales: Scales) -> Size:
    """The size of the first pass: it does not depend on the resolution of the picture, unless that is very low."""
    return _resized(width, height, min(scales.first_side / math.sqrt(width * height), scales.finest))


def run_passes(width: int, height: int, scales: Scales, cell: int, look: Look, detail: Detail) -> Passes:
    size = first_size(width, height, scales)
    wanted = np.ones(_grid(size, scales.block), bool)
    owner = np.zeros(wanted.shape, np.uint8)
    passes: list[Pass] = []

    def look_at(size: Size, blocks: Mask) -> Answer:
        boxes = tuple(_boxes(blocks, size, scales))
        passes.append(Pass(size, boxes, look(size, boxes)))
        owner[blocks] = len(passes) - 1
        return passes[-1].answer

    while True:
        scale, looked = size[0] / width, wanted
        wanted = too_small(look_at(size, looked), size, looked, scales, scales.step * scale, cell)
        # Detail is measured only where there could be another look.
        if not wanted.any() or min(scales.step * scale, scales.finest) < scales.smallest_step * scale:
            return Passes(tuple(passes), owner)
        looks = next_looks(scale, wanted, detail(_centres(wanted, width, height)), scales)
        full = looks[-1][0] == scales.step * scale if looks else False
        for larger, blocks in looks[:-1] if full else looks:
            look_at(_resized(width, height, larger), blocks)
        if not full:
            return Passes(tuple(passes), owner)
        larger, wanted = looks[-1]
        # Blocks keep about their size in pixels: they are quartered where the next pass is twice as large.
        if scales.step > math.sqrt(2):
            wanted, owner = (np.kron(blocks, np.ones((2, 2), blocks.dtype)) for blocks in (wanted, owner))
        size = _resized(width, height, larger)


def too_small(answer: Answer, size: Size, looked: Mask, scales: Scales, share: float, cell: int) -> Mask:
    """The blocks to look at again, larger: where heads are too small for the network at this scale.

    `looked`: the blocks that this pass looked at; `share`: the next pass' scale, in sizes of the picture.
    """
    blocks = looked.shape

    def around(cells: Counts) -> NDArray[np.float64]:
        return _with_neighbours(gathered(cells, size, blocks, cell))

    people, squares = around(answer.counts), np.maximum(around(answer.counts**2), 1e-9)
    # People per cell, as a person among them sees it; of the block and those around it.
    crowding = squares / np.maximum(people, 1e-6)
    enough = gathered(answer.counts, size, blocks, cell) >= scales.least_people
    crowded = enough & (crowding > scales.crowded)
    wanted = crowded | (enough & (crowding > scales.beside) & (_with_neighbours(crowded.astype(np.float64)) > 0))
    if answer.variance is not None:
        wanted |= (people >= scales.least_people) & (around(answer.variance) / squares > scales.doubt)
    if share <= scales.empty_until:  # so small a picture may hide people altogether
        wanted |= people < scales.nobody
    return looked & wanted


def cell_owners(owner: NDArray[np.uint8], size: Size, cell: int) -> NDArray[np.uint8]:
    """The pass that counts each cell [rows, columns] of the picture at a size, by the block that its centre lies in."""
    rows, columns = owner.shape
    return owner[np.ix_(_block_of(size[1], rows, cell), _block_of(size[0], columns, cell))]


def gathered(cells: Counts, size: Size, blocks: tuple[int, int], cell: int) -> NDArray[np.float64]:
    """The sums of a map's cells over [rows, columns] blocks; a cell belongs to the block that its centre lies in."""
    sums = cells.astype(np.float64)
    for axis, (length, number) in enumerate(((size[1], blocks[0]), (size[0], blocks[1]))):
        edges = np.searchsorted(_block_of(length, number, cell), np.arange(number + 1))
        starts, ends = edges[:-1], edges[1:]
        sums = np.add.reduceat(sums, np.minimum(starts, sums.shape[axis] - 1), axis=axis)
        np.moveaxis(sums, axis, 0)[starts == ends] = 0  # of no cells `reduceat` takes one
    return sums


def _block_of(length: int, blocks: int, cell: int) -> NDArray[np.int64]:
    """The block of each cell of an axis that is `length` pixels long."""
    starts = np.arange(0, length, cell)
    centres = (starts + np.minimum(starts + cell, length)) / 2
    return np.minimum((centres / length * blocks).astype(np.int64), blocks - 1)


def work(found: Passes, halo: int) -> int:
    """The pixels that the network sees in all passes, halos included."""
    pixels = 0
    for one in found.passes:
        for x, y, width, height in one.boxes:
            across = min(one.size[0], x + width + halo) - max(0, x - halo)
            down = min(one.size[1], y + height + halo) - max(0, y - halo)
            pixels += across * down
    return pixels


def _resized(width: int, height: int, scale: float) -> Size:
    """The picture's size times `scale`; its own size where that is as good as the same, so that nothing is resized.

    Of pictures of 1920x1080 and 3840x2160 a pass comes within half a percent of it.
    """
    if abs(scale - 1) < AS_GOOD:
        return width, height
    return max(1, round(width * scale)), max(1, round(height * scale))


def _centres(wanted: Mask, width: int, height: int) -> list[tuple[float, float]]:
    rows, columns = wanted.shape
    return [((x + 0.5) * width / columns, (y + 0.5) * height / rows) for y, x in np.argwhere(wanted)]


def _grid(size: Size, block: int) -> tuple[int, int]:
    return max(1, round(size[1] / block)), max(1, round(size[0] / block))


def _boxes(wanted: Mask, size: Size, scales: Scales) -> list[Box]:
    """Rectangles of blocks, in pixels of `size`."""
    rows, columns = wanted.shape
    halo = scales.halo / math.sqrt(size[0] / columns * size[1] / rows)
    boxes = []
    for x, y, width, height in covering(wanted, halo):
        left, right = (round(edge * size[0] / columns) for edge in (x, x + width))
        top, bottom = (round(edge * size[1] / rows) for edge in (y, y + height))
        boxes.append((left, top, right - left, bottom - top))
    return boxes


def _with_neighbours(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each block's value with those of the eight around it."""
    padded = np.pad(blocks, 1)
    rows, columns = blocks.shape
    total = np.zeros_like(blocks)
    for y in range(3):
        for x in range(3):
            total += padded[y : y + rows, x : x + columns]
    return total
