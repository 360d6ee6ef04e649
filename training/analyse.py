"""The paper's tables and figures, from data: what intervals cost, and where a model's error comes from."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Artifact
from uepnet.model.count import RunTiles, count_image
from uepnet.model.errors import DataError
from uepnet.model.intervals import classify
from uepnet.training.dataset import Sample
from uepnet.training.partition import Method, Partition, Proxies, discretisation_error, partition
from uepnet.training.targets import Kernel, local_counts

CountMap = NDArray[np.float32]


def count_maps(samples: Sequence[Sample], cell: int = 8, kernel: Kernel | None = None) -> list[CountMap]:
    """The true local counts of every image, unscaled."""
    return [
        local_counts(sample.points, (kernel or sample.kernel).sigmas(sample.points, *sample.size), sample.size, cell)
        for sample in samples
    ]


def local_counts_of(samples: Sequence[Sample], cell: int = 8, kernel: Kernel | None = None) -> CountMap:
    return np.concatenate([counts.ravel() for counts in count_maps(samples, cell, kernel)])


def discretisation(
    fitted_on: Sequence[CountMap], measured_on: Sequence[CountMap], intervals: int, knee: float
) -> dict[str, dict[str, float]]:
    """Mean absolute error an image by classes alone, for every partition and kind of proxy (one head, as the paper)."""
    counts = np.concatenate([counts.ravel() for counts in fitted_on])
    table: dict[str, dict[str, float]] = {}
    for method in get_args(Method):
        table[method] = {}
        for proxies in get_args(Proxies):
            made = partition(counts, intervals, method, proxies, heads="single", knee=knee)
            table[method][proxies] = discretisation_error(list(measured_on), made.heads[0])
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
    samples: Sequence[Sample], artifact: Artifact, run_tiles: RunTiles, kernel: Kernel | None = None
) -> dict[str, list[float] | float]:
    """Where a model's error comes from: summed |prediction - truth| of the cells of each true interval, as shares.

    Also the background's share: what is counted where nobody is.
    """
    if not artifact.heads:
        raise DataError("A regression model has no intervals: analyse a model with heads.")
    head = artifact.heads[0]
    errors = np.zeros(len(head.proxies))
    cells = np.zeros(len(head.proxies))
    for sample in samples:
        predicted = count_image(sample.load_image(), artifact, run_tiles).count_map
        (truth,) = count_maps([sample], artifact.cell, kernel)
        classes = classify(truth, head.borders)
        difference = np.abs(predicted - truth)
        errors += np.bincount(classes.ravel(), difference.ravel(), minlength=len(errors))
        cells += np.bincount(classes.ravel(), minlength=len(errors))
    total = errors.sum() or 1.0
    return {"shares": (errors / total).tolist(), "cells": cells.tolist(), "background": float(errors[0] / total)}


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
    figure.savefig(path, dpi=120)


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
    figure.savefig(path, dpi=120)


def plot_sweep(rows: Sequence[dict[str, float]], path: Path) -> None:
    figure, (axes,) = _figure(1, (1,))
    for method in get_args(Method):
        axes.plot([row["intervals"] for row in rows], [row[method] for row in rows], marker="o", label=method)
    axes.set(yscale="log", xlabel="intervals", ylabel="discretisation error, people per image")
    axes.legend()
    figure.savefig(path, dpi=120)


def plot_contributions(shares: Sequence[float], path: Path) -> None:
    figure, (axes,) = _figure(1, (1,))
    axes.bar(range(len(shares)), np.asarray(shares) * 100, color="#31688e")
    axes.set(xlabel="true interval (0: background)", ylabel="share of the error, %")
    figure.savefig(path, dpi=120)


def _figure(rows: int, ratios: tuple[int, ...]):  # type: ignore[no-untyped-def]
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots(rows, 1, height_ratios=ratios, squeeze=False)
    return figure, axes[:, 0]
