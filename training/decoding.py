"""Choose the decoding of a trained network by measurement: argmax or expectation, temperature, mirroring, scale.

The network runs once over every held-back image, its mirror image and each scale; all decodings are computed from the
same logits, on images with people (the error) and on images without people (the false count).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from uepnet.model.artifact import Artifact, Decoding, Expectation
from uepnet.model.scale import resized
from uepnet.model.tiling import cut, windows
from uepnet.training.data.dataset import Sample
from uepnet.training.inference_graph import expectation, normalise

TEMPERATURES = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8)
FLOORS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
CERTAIN = 0.05  # the default floor: it loses hardly any people, and an empty image counts exactly 0
FEW = 10  # people; errors of smaller counts are scaled as for this count
SAME = 0.03  # relative to the lowest error: smaller differences do not matter


@dataclass(frozen=True)
class Way:
    decoding: Decoding
    temperature: float = 1.0
    floor: float = 0.0
    mirror: bool = False
    scale: float = 1.0

    def __str__(self) -> str:
        read = f"T {self.temperature:g} floor {self.floor:g}" if self.decoding == "expectation" else self.decoding
        return f"{read} x{self.scale:g}" + " mirror" * self.mirror

    def oddness(self, own: float = 1.0) -> float:
        """Distance from the plain expectation at the scale `own`."""
        odd = (self.decoding != "expectation") + self.mirror + abs(math.log(self.temperature))
        return round(odd + abs(self.floor - CERTAIN) + abs(math.log(self.scale / own)), 6)

    def apply(self, artifact: Artifact) -> Artifact:
        """The artifact with this decoding."""
        chosen = Expectation(temperature=self.temperature, floor=self.floor)
        changes = {"decoding": self.decoding, "expectation": chosen, "mirror": self.mirror, "scale": self.scale}
        return artifact.model_copy(update=changes | {"calibration": None, "scales": None})  # both belong to a decoding


PLAIN = [Way("argmax"), *(Way("expectation", heat, floor) for heat in TEMPERATURES for floor in FLOORS)]


def ways(scales: Sequence[float] = (1.0,), mirror: bool = True) -> list[Way]:
    sides = (False, True) if mirror else (False,)
    return [replace(way, mirror=side, scale=scale) for scale in scales for side in sides for way in PLAIN]


@dataclass(frozen=True)
class DecodingRow:
    """The results of one decoding."""

    way: Way
    mae: tuple[float, ...]  # of each group of samples
    errors: tuple[tuple[float, ...], ...]  # per image, divided by the square root of its people
    bias: tuple[float, ...]
    empty: tuple[float, float, float]  # median, 90th percentile and mean count on images without people

    @property
    def scaled(self) -> tuple[float, ...]:
        return tuple(float(np.mean(group)) for group in self.errors)

    def fit_for_service(self) -> bool:
        """Whether images without people count (almost) nobody."""
        median, most, mean = self.empty
        return round(median) == 0 and most <= 1 and mean <= 2


def compare(
    network: nn.Module,
    artifact: Artifact,
    groups: Sequence[Sequence[Sample]],
    empties: Sequence[Sample],
    watch: Callable[[], None] = lambda: None,
    scales: Sequence[float] = (),
    mirror: bool = True,
) -> list[DecodingRow]:
    """Measure every decoding on every group of samples and on the images without people: at the scale of the model
    unless `scales` are given, also mirrored (which doubles the work of a count) unless that is excluded."""
    scales = scales or (artifact.scale,)

    def counts_of(samples: Sequence[Sample]) -> NDArray[np.float64]:
        return np.array([_counts(network, artifact, sample, watch, scales, mirror) for sample in samples])

    measured = [(counts_of(group), [len(sample.points) for sample in group]) for group in groups]
    nobody = counts_of(empties)
    rows = []
    for index, way in enumerate(ways(scales, mirror)):
        errors = [counts[:, index] - np.array(truths) for counts, truths in measured]
        seen = nobody[:, index] if len(nobody) else np.zeros(1)
        rows.append(
            DecodingRow(
                way,
                tuple(float(np.abs(error).mean()) for error in errors),
                tuple(
                    tuple((np.abs(error) / np.sqrt(np.maximum(truths, FEW))).tolist())
                    for error, (_, truths) in zip(errors, measured, strict=True)
                ),
                tuple(float(error.mean()) for error in errors),
                (float(np.median(seen)), float(np.quantile(seen, 0.9)), float(seen.mean())),
            )
        )
    return rows


def best(rows: Sequence[DecodingRow], own: float = 1.0) -> DecodingRow:
    """The decoding with the lowest scaled error, relative to the best of each group, without false counts.

    MAE is not used: over a few dozen images it is the error of the one or two largest crowds. Nor is the relative
    error: it depends on the smallest crowds and prefers counts that are too low. Decodings within the standard error
    of the difference, or within a negligible difference, count as equally good; of those the one nearest to the plain
    expectation at the scale `own` is chosen, so that another scale, mirroring or a temperature must pay off.
    """
    fit, top, lowest = _lowest(rows)
    little = SAME * _total(top, lowest)
    as_good = [
        row for row in fit if _total(row, lowest) - _total(top, lowest) <= max(little, _uncertainty(row, top, lowest))
    ]
    return min(as_good, key=lambda row: (row.way.oddness(own), _total(row, lowest)))


def why(chosen: DecodingRow, rows: Sequence[DecodingRow]) -> str:
    """Why `best` chose it, in a sentence."""
    fit, top, lowest = _lowest(rows)
    if not chosen.fit_for_service():
        return "No decoding counts nobody in the images without people."
    among = f"all {len(rows)} decodings"
    if len(fit) < len(rows):
        among = f"the {len(fit)} of {len(rows)} decodings that count nobody in images without people"
    if chosen is top:
        return f"{chosen.way} has the lowest scaled error of {among}."
    more = _total(chosen, lowest) / _total(top, lowest) - 1
    return (
        f"{top.way} has the lowest scaled error of {among}; {chosen.way} has {more:.1%} more, which is negligible or "
        "may be chance, and of such decodings it is the nearest to the plain expectation at the model's scale."
    )


def _lowest(rows: Sequence[DecodingRow]) -> tuple[list[DecodingRow], DecodingRow, list[float]]:
    """The rows fit for service (all, if none is), the one with the lowest total, and the lowest error of each group."""
    fit = [row for row in rows if row.fit_for_service()] or list(rows)
    lowest = [min(row.scaled[group] for row in rows) or 1.0 for group in range(len(rows[0].errors))]
    return fit, min(fit, key=lambda row: _total(row, lowest)), lowest


def _total(row: DecodingRow, lowest: Sequence[float]) -> float:
    return sum(error / low for error, low in zip(row.scaled, lowest, strict=True))


def _uncertainty(row: DecodingRow, other: DecodingRow, lowest: Sequence[float]) -> float:
    """The standard error of the difference between two decodings on the same images."""
    variance = 0.0
    for group, others, low in zip(row.errors, other.errors, lowest, strict=True):
        differences = (np.array(group) - np.array(others)) / low
        if len(differences) < 2:
            return math.inf
        variance += float(differences.var(ddof=1)) / len(differences)
    return math.sqrt(variance)


def _counts(
    network: nn.Module,
    artifact: Artifact,
    sample: Sample,
    watch: Callable[[], None],
    scales: Sequence[float],
    mirror: bool,
) -> list[float]:
    """The count of one image with every decoding."""
    image = sample.load_image()
    counts = [count for scale in scales for count in _counts_at(network, artifact, resized(image, scale), mirror)]
    watch()
    return counts


def _counts_at(network: nn.Module, artifact: Artifact, image: NDArray[np.uint8], mirror: bool) -> list[float]:
    """The counts with every decoding, then also mirrored if requested."""
    height, width = image.shape[:2]
    tiling, padding = artifact.tiling, artifact.normalisation.padding
    plain, mirrored = np.zeros(len(PLAIN)), np.zeros(len(PLAIN))
    for window in windows(width, height, tiling.tile, tiling.halo, artifact.cell, artifact.multiple):
        tile = cut(image, window, padding)
        plain += [float(counts[window.inner].sum()) for counts in _ways(network, artifact, tile)]
        if mirror:
            flipped = _ways(network, artifact, tile[:, ::-1])
            mirrored += [float(counts.flip(1)[window.inner].sum()) for counts in flipped]
    return [*plain, *((plain + mirrored) / 2)] if mirror else plain.tolist()


def _ways(network: nn.Module, artifact: Artifact, tile: np.ndarray) -> Iterator[Tensor]:
    """The count map [rows, columns] of a tile with every decoding, not mirrored."""
    mean, std = torch.tensor(artifact.normalisation.mean), torch.tensor(artifact.normalisation.std)
    proxies = [torch.tensor(head.proxies, dtype=torch.float32) for head in artifact.heads]
    with torch.inference_mode():
        logits = network(normalise(torch.from_numpy(np.array(tile, order="C"))[None], mean, std))
        for way in PLAIN:
            if way.decoding == "argmax":
                maps = [head[scores.argmax(1)] for head, scores in zip(proxies, logits, strict=True)]
                yield torch.stack(maps).mean(0)[0]
            else:
                yield expectation(logits, proxies, way.temperature, way.floor)[0][0]
