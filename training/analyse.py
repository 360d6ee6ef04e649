"""Tables and figures of the paper, from data: discretisation errors, and where the error of a model comes from."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Artifact, Head
from uepnet.model.count import RunTiles, count_image
from uepnet.model.errors import DataError
from uepnet.model.intervals import classify
from uepnet.model.outputs import picture_format, whole_file
from uepnet.model.scale import resized
from uepnet.training.data.dataset import Sample
from uepnet.training.data.targets import CountMap, Kernel, local_counts
from uepnet.training.partition import (
    Method,
    Partition,
    Proxies,
    discretisation_error,
    fixed_head,
    liu_borders,
    partition,
    sdcnet_borders,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class HeadContributions(TypedDict):
    shares: list[float]
    errors: list[float]  # people per image
    cells: list[float]


class Contributions(HeadContributions):
    heads: list[HeadContributions]
    background: float


def discretisation(
    fitted_on: Sequence[CountMap], measured_on: Sequence[CountMap], intervals: int, knee: float
) -> dict[str, dict[str, float]]:
    """Mean absolute error per image if all classes are right, for each partition and kind of proxy (one head).

    `s-dcnet` and `liu` have the steps of these methods, and so numbers of intervals of their own.
    """
    counts = np.concatenate([counts.ravel() for counts in fitted_on])
    table: dict[str, dict[str, float]] = {}
    for method in get_args(Method):
        table[method] = {}
        for proxies in get_args(Proxies):
            made = partition(counts, intervals, method, proxies, heads="single", knee=knee)
            table[method][proxies] = discretisation_error(list(measured_on), made.heads[0])
    t_max = float(counts.max())
    for name, steps in (("s-dcnet", sdcnet_borders(t_max)), ("liu", liu_borders(t_max))):
        fixed = {kind: fixed_head(counts, steps, kind) for kind in get_args(Proxies)}
        table[name] = {kind: discretisation_error(list(measured_on), head) for kind, head in fixed.items()}
    return table


def interval_sweep(
    fitted_on: Sequence[CountMap], measured_on: Sequence[CountMap], numbers: Sequence[int], knee: float
) -> list[dict[str, float]]:
    """Discretisation error with mean proxies over the number of intervals."""
    rows = []
    counts = np.concatenate([counts.ravel() for counts in fitted_on])
    for number in numbers:
        row: dict[str, float] = {"intervals": number}
        for method in get_args(Method):
            made = partition(counts, number, method, heads="single", knee=knee)
            row[method] = discretisation_error(list(measured_on), made.heads[0])
        rows.append(row)
    return rows


def error_contributions(
    samples: Sequence[Sample],
    artifact: Artifact,
    run_tiles: RunTiles,
    kernel: Kernel | None = None,
    heads: Sequence[Head] = (),
) -> Contributions:
    """Where a model's error comes from: summed |prediction - truth| of the cells of each true interval, as shares.

    The intervals are those of the model's heads, or `heads` for a regression model, which has none. `background` is
    the share of the cells where nobody is; `shares`, `errors` and `cells` are those of the first head. Cells are those
    of the network: images are counted at the model's fixed scale, to which its intervals belong.
    """
    heads = artifact.heads or tuple(heads)
    if not heads:
        raise DataError("A regression model has no intervals of its own: pass those of its training data.")
    at_scale = artifact.model_copy(update={"scale": 1.0, "scales": None})
    errors = [np.zeros(len(head.proxies)) for head in heads]
    cells = [np.zeros(len(head.proxies)) for head in heads]
    for sample in samples:
        image, truth = at_network_scale(sample, artifact, kernel)
        difference = np.abs(count_image(image, at_scale, run_tiles).count_map - truth).ravel()
        for index, head in enumerate(heads):
            classes = classify(truth, head.borders).ravel()
            errors[index] += np.bincount(classes, difference, minlength=len(head.proxies))
            cells[index] += np.bincount(classes, minlength=len(head.proxies))
    rows: list[HeadContributions] = [
        {
            "shares": (summed / (summed.sum() or 1.0)).tolist(),
            "errors": (summed / max(1, len(samples))).tolist(),
            "cells": number.tolist(),
        }
        for summed, number in zip(errors, cells, strict=True)
    ]
    return {"heads": rows, **rows[0], "background": rows[0]["shares"][0]}


def at_network_scale(sample: Sample, artifact: Artifact, kernel: Kernel | None) -> tuple[NDArray[np.uint8], CountMap]:
    """The image as the network sees it at the model's fixed scale, and the true counts of its cells."""
    image = resized(sample.load_image(), artifact.scale)
    height, width = image.shape[:2]
    points = sample.points * artifact.scale
    sigmas = (kernel or sample.kernel).sigmas(points, width, height)
    return image, local_counts(points, sigmas, (width, height), artifact.cell)


def plot_partition(made: Partition, counts: CountMap, path: Path) -> None:
    """The histogram of local counts, with the borders and proxies of each head below it."""
    figure, (top, below) = _figure(2, (3, 1))
    foreground = counts[counts >= made.heads[0].borders[0]]
    bins = np.geomspace(made.heads[0].borders[0], made.t_max, 120)
    top.hist(foreground, bins=bins, color="#31688e")
    top.set(xscale="log", yscale="log", ylabel="cells", title=f"{foreground.size:,} cells with people")
    for index, head in enumerate(made.heads):
        below.vlines(head.borders, index - 0.35, index + 0.35, color="#31688e", linewidth=1)
        below.plot(head.proxies[1:], [index] * (len(head.proxies) - 1), "v", color="#d1495b", markersize=4)
    below.set(xlabel="people per cell (lines: borders, triangles: proxies)", yticks=range(len(made.heads)))
    below.set_yticklabels([f"head {index}" for index in range(len(made.heads))])
    below.invert_yaxis()
    below.set(xscale="log", xlim=top.get_xlim())
    _save(figure, path)


def plot_table(table: dict[str, dict[str, float]], path: Path) -> None:
    figure, (axes,) = _figure(1, (1,))
    kinds = list(get_args(Proxies))
    positions = np.arange(len(table))
    for offset, (kind, colour) in enumerate(zip(kinds, ("#d1495b", "#31688e", "#8fb339"), strict=True)):
        heights = [row[kind] for row in table.values()]
        bars = axes.bar(positions + (offset - 1) * 0.27, heights, 0.25, label=kind, color=colour)
        axes.bar_label(bars, fmt="%.3g", fontsize=8)
    axes.set(yscale="log", ylabel="discretisation error, people per image", xticks=positions)
    axes.set_xticklabels(list(table))
    axes.legend(title="proxies")
    _save(figure, path)


def plot_sweep(rows: Sequence[dict[str, float]], path: Path) -> None:
    figure, (axes,) = _figure(1, (1,))
    for method in get_args(Method):
        axes.plot([row["intervals"] for row in rows], [row[method] for row in rows], marker="o", label=method)
    axes.set(yscale="log", xlabel="intervals", ylabel="discretisation error, people per image")
    axes.legend()
    _save(figure, path)


def plot_contributions(heads: Sequence[HeadContributions], path: Path) -> None:
    """A bar for each interval of each head, coloured by the number of its cells, as in the paper."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    figure, rows = _figure(len(heads), (1,) * len(heads))
    most = max(number for head in heads for number in head["cells"])
    shade = ScalarMappable(LogNorm(1, max(10.0, most)), colormaps["viridis"])
    for index, (axes, head) in enumerate(zip(rows, heads, strict=True)):
        colours = shade.to_rgba(np.maximum(1, head["cells"]))
        axes.bar(range(len(head["shares"])), np.asarray(head["shares"]) * 100, color=colours)
        axes.set(ylabel="share of the error, %", title=f"head {index}", xlim=(-0.8, len(head["shares"]) - 0.2))
    rows[-1].set_xlabel("true interval (0: background)")
    figure.colorbar(shade, ax=list(rows), label="cells of the interval")
    _save(figure, path)


def _save(figure: "Figure", path: Path) -> None:
    with whole_file(path) as file:
        figure.savefig(file, dpi=120, format=picture_format(path))


def _figure(rows: int, ratios: tuple[int, ...]):  # type: ignore[no-untyped-def]
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots(rows, 1, height_ratios=ratios, squeeze=False)
    return figure, axes[:, 0]
