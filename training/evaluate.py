"""Errors of a model on annotated images, measured through `model.count`, the path that serves."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from uepnet.model.artifact import Artifact
from uepnet.model.count import Count, RunTiles, Tile, count_image, range_of
from uepnet.model.decode import Maps
from uepnet.model.outputs import whole_text
from uepnet.training.data.dataset import Sample
from uepnet.training.data.region import cell_shares


def torch_runner(network: nn.Module, artifact: Artifact, device: torch.device) -> RunTiles:
    """Tiles -> maps with the torch network, one tile at a time."""
    from uepnet.training.inference_graph import Graph

    graph = Graph(network, artifact).to(device).eval()
    heads = len(artifact.heads)

    def run(tiles: Iterator[Tile]) -> Iterator[Maps]:
        for tile in tiles:
            with torch.inference_mode():
                outputs = graph(torch.from_numpy(np.array(tile))[None].to(device))
            arrays = [output[0].cpu().numpy() for output in outputs]
            names: tuple[str, ...] = ("counts", "variance") if artifact.decoding != "argmax" else ()
            names += ("familiarity",) if artifact.familiarity is not None else ()
            yield Maps(tuple(arrays[:heads]), **dict(zip(names, arrays[heads:], strict=True)))

    return run


@dataclass(frozen=True)
class Result:
    """True count and prediction of one image."""

    name: str
    truth: int
    count: Count  # of the whole image; its range belongs to `counted`
    counted: float  # the count, within the region of interest if there is one
    seconds: float
    scene: str = ""

    @property
    def error(self) -> float:
        return self.counted - self.truth


def evaluate(
    samples: Sequence[Sample],
    artifact: Artifact,
    run_tiles: RunTiles,
    watch: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Count every image; the true count includes points outside the frame."""
    results = []
    for sample in samples:
        image = sample.load_image()
        started = time.perf_counter()
        count = count_image(image, artifact, run_tiles)
        seconds = time.perf_counter() - started
        counted = count.count
        if sample.region is not None:
            counted = float((count.count_map * cell_shares(sample.region(), count.cell)).sum())
            count = replace(count, range=range_of(counted, artifact, count.doubt))
        result = Result(sample.name, len(sample.points), count, counted, seconds, sample.scene)
        watch(result)
        results.append(result)
    return results


def count_errors(samples: Sequence[Sample], artifact: Artifact, run_tiles: RunTiles) -> list[float]:
    return [result.error for result in evaluate(samples, artifact, run_tiles)]


def summary(results: Sequence[Result]) -> dict[str, float | int | None]:
    """The error metrics that papers report, and coverage and width of the range."""
    errors = np.array([result.error for result in results])
    truths = np.array([result.truth for result in results], dtype=np.float64)
    ranges = [(result.count.range, result.truth) for result in results if result.count.range is not None]
    covered = [bounds.low <= truth <= bounds.high for bounds, truth in ranges]
    occupied = truths > 0
    return {
        "images": len(results),
        "mae": float(np.abs(errors).mean()),
        "rmse": math.sqrt(float((errors**2).mean())),
        "nae": float((np.abs(errors[occupied]) / truths[occupied]).mean()) if occupied.any() else None,
        "bias": float(errors.mean()),
        "coverage": float(np.mean(covered)) if ranges else None,
        "range_width": float(np.mean([bounds.high - bounds.low for bounds, _ in ranges])) if ranges else None,
        "seconds_per_image": float(np.mean([result.seconds for result in results])),
    }


def write_csv(results: Sequence[Result], path: Path) -> None:
    import csv

    with whole_text(path) as file:
        rows = csv.writer(file)
        rows.writerow(["image", "truth", "count", "low", "high", "error"])
        for result in results:
            bounds = result.count.range
            low, high = (f"{bounds.low:.2f}", f"{bounds.high:.2f}") if bounds else ("", "")
            rows.writerow([result.name, result.truth, f"{result.counted:.2f}", low, high, f"{result.error:.2f}"])


def per_scene(results: Sequence[Result]) -> dict[str, float]:
    """The MAE of each scene, and `average`, their mean (WorldExpo'10's protocol)."""
    scenes = sorted({result.scene for result in results if result.scene})
    if not scenes:
        return {}
    errors = {
        scene: float(np.mean([abs(result.error) for result in results if result.scene == scene])) for scene in scenes
    }
    return errors | {"average": float(np.mean(list(errors.values())))}
