"""What was found in the parts of an image -> the numbers of the image. Most images are one part (`model.seams`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uepnet.model.decode import Counts, regrid
from uepnet.model.passes import Pass, Passes, cell_owners
from uepnet.model.regions import Box, Mask
from uepnet.model.tiling import cells_shape

LEAST_DOUBT = 0.01  # keeps the doubt of an image without people finite: it is 1


@dataclass(frozen=True, slots=True)
class ScaleUse:
    """A scale at which a part of the image was counted."""

    scale: float  # times the image's size
    share: float  # of the image's cells that were counted at it


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    box: Box  # in pixels of the image; it starts at the edge of a cell
    passes: Passes
    scales: tuple[float, ...]  # of each pass, times the image's size


def assembled(
    parts: Sequence[Part], width: int, height: int, cell: int
) -> tuple[Counts, tuple[ScaleUse, ...], NDArray[np.uint8]]:
    """The image's count map, the scales that it was counted at, and which of them counted each of its cells."""
    shape = cells_shape(width, height, cell)
    counts, scale_map = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
    named = [part.scales if len(parts) == 1 else tuple(map(_two_digits, part.scales)) for part in parts]
    scales = sorted({scale for names in named for scale in names})
    for part, names in zip(parts, named, strict=True):
        x, y, part_width, part_height = part.box
        own, owners = gather(part.passes, part_width, part_height, cell)
        place = slice(y // cell, y // cell + own.shape[0]), slice(x // cell, x // cell + own.shape[1])
        counts[place] = own
        scale_map[place] = np.array([scales.index(scale) for scale in names], np.uint8)[owners]
    uses = tuple(ScaleUse(scale, float((scale_map == index).mean())) for index, scale in enumerate(scales))
    return counts, uses, scale_map


def gather(found: Passes, width: int, height: int, cell: int) -> tuple[Counts, NDArray[np.uint8]]:
    """The count map of a part and, of the same shape, the pass that each of its cells comes from."""
    owners = cell_owners(found.owner, (width, height), cell)
    counts = np.zeros(owners.shape, np.float32)
    for index, one in enumerate(found.passes):
        own = one.answer.counts
        if one.size != (width, height):
            own = regrid(own, (width, height), one.size, cell)
        np.copyto(counts, own, where=owners == index)
    return counts, owners


def saturated_share(parts: Sequence[Part], cell: int) -> float:
    """The share of occupied cells that lie in the densest class, each cell in the pass that counts it."""
    occupied = densest = 0
    for one, own in _owned(parts, cell):
        occupied += int((one.answer.occupied & own).sum())
        densest += int((one.answer.densest & own).sum())
    return densest / occupied if occupied else 0.0


def doubt_of(parts: Sequence[Part], cell: int) -> float | None:
    """How unsure the network is of the cells that it counts, each cell in the pass that counts it."""
    variance = squares = LEAST_DOUBT
    for one, own in _owned(parts, cell):
        if one.answer.variance is None:
            return None
        variance += float(one.answer.variance[own].sum(dtype=np.float64))
        squares += float((one.answer.counts[own].astype(np.float64) ** 2).sum())
    return variance / squares


def familiarity_of(parts: Sequence[Part]) -> float | None:
    """The mean over the first passes, which see the whole image: a missed crowd has no occupied cells."""
    total = pixels = 0.0
    for part in parts:
        cells = part.passes.passes[0].answer.familiarity
        if cells is None:
            return None
        area = part.box[2] * part.box[3]
        total += float(cells.mean(dtype=np.float64)) * area
        pixels += area
    return total / pixels


def _owned(parts: Sequence[Part], cell: int) -> Iterator[tuple[Pass, Mask]]:
    """Each pass, and which of its cells it counts."""
    for part in parts:
        for index, one in enumerate(part.passes.passes):
            yield one, cell_owners(part.passes.owner, one.size, cell) == index


def _two_digits(scale: float) -> float:
    """Parts of about the same size have about the same scales, which the answer names once; it has room for 255."""
    return float(f"{scale:.2g}")
