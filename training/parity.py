"""Differences between an exported model and torch on the same tiles."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import MULTIPLE, Artifact
from uepnet.model.count import RunTiles, Tile
from uepnet.model.decode import Maps, count_map
from uepnet.model.errors import DataError, InputError
from uepnet.model.image import load_image
from uepnet.model.scale import resized
from uepnet.training.config import Config
from uepnet.training.data.dataset import load
from uepnet.training.data.layouts import images_in
from uepnet.training.data.sample import MAX_PIXELS

LARGE = ((256, 256), (512, 384), (512, 512), (1024, 768))  # (width, height), in turn
SMALL = ((256, 256), (384, 256), (256, 384))


@dataclass(frozen=True, eq=False)
class Probe:
    """A tile and its source."""

    name: str
    pixels: Tile


@dataclass(frozen=True)
class Difference:
    """Differences relative to torch's count; for a tile with less than one person in it, to one."""

    tiles: int
    class_agreement: float  # share of cells with the same class in every head
    count_difference: float  # mean over tiles
    cell_difference: float  # sum of the absolute differences of cells, divided by all people: errors cannot cancel out
    worst_tile: float
    worst: str  # where that is
    familiarity_difference: float = 0.0  # of a tile's mean; mean over tiles, as an image's score is a mean, too


def worse(one: Difference, other: Difference | None) -> Difference:
    """Of two computations of the same file, the one that is further from torch."""
    if other is None:
        return one
    familiarity = max(one.familiarity_difference, other.familiarity_difference)
    further = max(one, other, key=lambda difference: difference.count_difference)
    return replace(further, familiarity_difference=familiarity)


def probe_images(run: Path, folder: Path | None) -> tuple[list[Path], list[Path]]:
    """(images to compare on, images to calibrate on): of a folder, every other one; else the run's own val and fit."""
    if folder is not None:
        found = images_in(folder)
        if len(found) < 2:
            raise DataError(f"{folder} holds {len(found)} images: comparison and calibration need at least two.")
        return found[::2], found[1::2]
    try:
        data = Config.read(run).data
        held = [sample.image for name, root in data for sample in load(name, Path(root), "val")]
        fitted = [sample.image for name, root in data for sample in load(name, Path(root), "fit")]
    except InputError as error:
        raise DataError(
            f"The images of the run cannot be read ({error}): give a folder of images with --images."
        ) from None
    return held, fitted


def cut_probes(
    images: Sequence[Path], number: int, sizes: Sequence[tuple[int, int]], seed: int, scale: float = 1.0
) -> list[Probe]:
    """`number` tiles at random places of images spread evenly over the list, each at `scale` times its size."""
    if not images:
        raise DataError("There are no images to compare the export on.")
    rng = np.random.default_rng(seed)
    chosen = [images[index * len(images) // number] for index in range(number)]
    return [_cut(path, sizes[index % len(sizes)], rng, scale) for index, path in enumerate(chosen)]


def _cut(path: Path, size: tuple[int, int], rng: np.random.Generator, scale: float) -> Probe:
    image = resized(load_image(path, max_pixels=MAX_PIXELS), scale)
    height, width = (_fit(side, wanted) for side, wanted in zip(image.shape[:2], size[::-1], strict=True))
    if not height or not width:
        raise DataError(f"{path} is too small: an image needs at least {MULTIPLE}x{MULTIPLE} pixels.")
    y, x = (int(rng.integers(0, room + 1)) for room in (image.shape[0] - height, image.shape[1] - width))
    name = f"{path.name} at ({x}, {y}), {width}x{height}"
    return Probe(name, image[y : y + height, x : x + width].copy())


def _fit(side: int, wanted: int) -> int:
    return min(side, wanted) // MULTIPLE * MULTIPLE


def answers(run_tiles: RunTiles, probes: Sequence[Probe]) -> list[Maps]:
    return list(run_tiles(probe.pixels for probe in probes))


def compare(probes: Sequence[Probe], truth: Sequence[Maps], maps: Sequence[Maps], artifact: Artifact) -> Difference:
    """`truth` is torch's answer to the probes, `maps` the exported model's."""
    wanted = [_people(answer, artifact) for answer in truth]
    found = [_people(answer, artifact) for answer in maps]
    totals = [float(counts.sum(dtype=np.float64)) for counts in wanted]
    answers = [float(counts.sum(dtype=np.float64)) for counts in found]
    relative = [abs(a - b) / max(b, 1.0) for a, b in zip(answers, totals, strict=True)]
    worst = int(np.argmax(relative))
    cells = sum(float(np.abs(a - b).sum()) for a, b in zip(found, wanted, strict=True))
    return Difference(
        tiles=len(probes),
        class_agreement=_agreement(truth, maps),
        count_difference=float(np.mean(relative)),
        cell_difference=cells / max(sum(totals), 1.0),
        worst_tile=relative[worst],
        worst=f"{probes[worst].name} counts {answers[worst]:.2f} instead of {totals[worst]:.2f}",
        familiarity_difference=_familiarity_difference(truth, maps),
    )


def _people(maps: Maps, artifact: Artifact) -> NDArray[np.float32]:
    counts = count_map(maps, artifact)
    if not np.isfinite(counts).all():
        raise DataError("A count is not a finite number: the network's weights or its fp16 range are broken.")
    return counts


def _familiarity_difference(truth: Sequence[Maps], maps: Sequence[Maps]) -> float:
    pairs = [(one.familiarity, other.familiarity) for one, other in zip(truth, maps, strict=True)]
    means = [(one.mean(), other.mean()) for one, other in pairs if one is not None and other is not None]
    return float(np.mean([abs(one - other) for one, other in means])) if means else 0.0


def _agreement(truth: Sequence[Maps], maps: Sequence[Maps]) -> float:
    if not truth[0].classes:
        return 1.0  # a regression network has none to disagree on
    pairs = [
        (one, other)
        for left, right in zip(truth, maps, strict=True)
        for one, other in zip(left.classes, right.classes, strict=True)
    ]
    same = sum(int((one == other).sum()) for one, other in pairs)
    return same / sum(one.size for one, _ in pairs)


def occupied_classes(maps: Sequence[Maps]) -> int:
    """How many classes are answered somewhere, in the head that uses fewest."""
    heads = len(maps[0].classes)
    used = [len(set().union(*(np.unique(answer.classes[head]).tolist() for answer in maps))) for head in range(heads)]
    return min(used, default=0)
