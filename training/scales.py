"""Tune how the scale is chosen from the image: which constants give the lowest error, and at what cost.

The network runs once over each whole image at every size that a candidate asks for. The candidates are simulated on
these answers through the code that serves (`model.passes`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from uepnet.model.artifact import Artifact, Scales
from uepnet.model.count import RunTiles, count_image, look
from uepnet.model.detail import spectra
from uepnet.model.parts import gather
from uepnet.model.passes import Answer, Size, run_passes, work
from uepnet.model.regions import Box
from uepnet.model.tiling import windows
from uepnet.training.data.dataset import Sample

FIRST_SIDES = (512.0, 724.0)
FINEST = (1.75, 2.0)
CROWDED = (0.05, 0.07, 0.1, 0.15)
DOUBT = (1.0, 1.5)
BESIDE = 0.7  # of `crowded`
FEW = 10  # people; below it errors are scaled as for this many
SAME = 0.02  # of the lowest error: a difference too small to pay for


def candidates() -> list[Scales]:
    return [
        Scales(
            first_side=side,
            finest=finest,
            block=96,
            crowded=crowded,
            beside=BESIDE * crowded,
            doubt=doubt,
            least_people=0.6,
        )
        for side, finest, crowded, doubt in product(FIRST_SIDES, FINEST, CROWDED, DOUBT)
    ]


@dataclass(frozen=True)
class ScalesRow:
    """What one way to choose the scale gives; each tuple has a number per group of samples."""

    scales: Scales | None  # None: the fixed scale
    mae: tuple[float, ...]
    scaled: tuple[float, ...]  # mean of |error| / sqrt(people)
    bias: tuple[float, ...]
    megapixels: tuple[float, ...]  # that the network sees per image


class Pyramid:
    """One image, and what the network answered at each size that was asked for."""

    def __init__(self, sample: Sample, artifact: Artifact, run_tiles: RunTiles) -> None:
        self.truth = len(sample.points)
        self._image = sample.load_image()
        self._artifact, self._run_tiles = artifact, run_tiles
        self._answers: dict[Size, Answer] = {}

    def fixed(self) -> tuple[float, float]:
        """(people, megapixels that the network sees) at the fixed scale"""
        artifact = self._artifact.model_copy(update={"scales": None})
        count = count_image(self._image, artifact, self._run_tiles)
        return count.count, count.width * count.height * artifact.scale**2 / 1e6

    def chosen(self, scales: Scales) -> tuple[float, float]:
        """The same with the scale chosen from the image."""
        height, width = self._image.shape[:2]
        cell = self._artifact.cell
        found = run_passes(width, height, scales, cell, self._look, partial(spectra, self._image))
        counts, _ = gather(found, width, height, cell)
        return float(counts.sum(dtype=np.float64)), work(found, scales.halo) / 1e6

    def _look(self, size: Size, _: Sequence[Box]) -> Answer:
        if size not in self._answers:
            artifact, tiling = self._artifact, self._artifact.tiling
            places = windows(*size, tiling.tile, tiling.halo, artifact.cell, artifact.multiple)
            self._answers[size] = look(self._image, size, places, artifact, self._run_tiles)
        return self._answers[size]


def tune(
    groups: Sequence[Sequence[Sample]],
    artifact: Artifact,
    run_tiles: RunTiles,
    watch: Callable[[], None] = lambda: None,
) -> list[ScalesRow]:
    """A row for the fixed scale, then one for each candidate."""
    ways: list[Scales | None] = [None, *candidates()]
    truths: list[list[int]] = []
    found: list[list[list[tuple[float, float]]]] = []  # [group][image][way]
    for group in groups:
        truths.append([])
        found.append([])
        for sample in group:  # one image at a time: its answers are dropped with it
            one = Pyramid(sample, artifact, run_tiles)
            truths[-1].append(one.truth)
            found[-1].append([one.fixed() if way is None else one.chosen(way) for way in ways])
            watch()
    return [_row(way, truths, [[image[index] for image in group] for group in found]) for index, way in enumerate(ways)]


def best(rows: Sequence[ScalesRow]) -> ScalesRow:
    """The cheapest way whose error is within `SAME` of the lowest, over all groups; the fixed scale is one of them."""
    lowest = [min(row.scaled[group] for row in rows) or 1.0 for group in range(len(rows[0].scaled))]

    def error(row: ScalesRow) -> float:
        return float(np.mean([scaled / low for scaled, low in zip(row.scaled, lowest, strict=True)]))

    limit = (1 + SAME) * min(error(row) for row in rows)
    return min((row for row in rows if error(row) <= limit), key=lambda row: (sum(row.megapixels), error(row)))


def _row(
    scales: Scales | None, truths: Sequence[Sequence[int]], counted: Sequence[Sequence[tuple[float, float]]]
) -> ScalesRow:
    mae, scaled, bias, megapixels = [], [], [], []
    for group, found in zip(truths, counted, strict=True):
        people = np.array(group, dtype=np.float64)
        errors = np.array([count for count, _ in found]) - people
        mae.append(float(np.abs(errors).mean()))
        scaled.append(float((np.abs(errors) / np.sqrt(np.maximum(people, FEW))).mean()))
        bias.append(float(errors.mean()))
        megapixels.append(float(np.mean([pixels for _, pixels in found])))
    return ScalesRow(scales, tuple(mae), tuple(scaled), tuple(bias), tuple(megapixels))
