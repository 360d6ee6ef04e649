"""|dL / d output| of a training run's cells by the size of their error (Figure 5 of the paper)."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from uepnet.commands.analyses.shared import AnalysisResult, Table, training_run

if TYPE_CHECKING:
    from uepnet.training.data.dataset import Sample

NEEDED = "Gradients need a training run: pass its folder as {}."


def analyse(args: argparse.Namespace) -> AnalysisResult:
    from uepnet.commands.shared.sources import samples_of
    from uepnet.training.gradients import plot_gradients

    runs = [training_run(args.model, NEEDED.format("--model"))]
    if args.beside is not None:
        runs.append(training_run(args.beside, NEEDED.format("--beside")))
    samples = samples_of(args)
    kinds = [_kind(run) for run in runs]
    titles = kinds if len(set(kinds)) == len(runs) else [str(run) for run in runs]
    found = {title: _gradients(run, samples) for title, run in zip(titles, runs, strict=True)}
    if args.plot:
        plot_gradients(found, args.plot)
    table: Table = [["loss", "error from", "to", "cells", "mean gradient", "share of gradient"]]
    table += [[title, *row.values()] for title, rows in found.items() for row in rows]
    first, *others = [_finite(rows) for rows in found.values()]
    return AnalysisResult({"rows": first} | ({"beside": others[0]} if others else {}), table)


def _kind(run: Path) -> str:
    """The loss that the run was trained with."""
    from uepnet.model.artifact import Artifact

    return "squared error" if Artifact.load(run).decoding == "regression" else "cross-entropy"


def _gradients(run: Path, samples: "list[Sample]") -> list[dict[str, float]]:
    from uepnet.model.artifact import Artifact
    from uepnet.training.data.targets import parse_kernel
    from uepnet.training.gradients import gradients_by_error
    from uepnet.training.prepare import load_network

    artifact = Artifact.load(run)
    kernel = parse_kernel(str(artifact.training.get("settings", {}).get("kernel", "")))
    return gradients_by_error(samples, load_network(run, artifact), artifact, kernel)


def _finite(rows: list[dict[str, float]]) -> list[dict[str, object]]:
    """JSON has no infinity: the last interval of errors has no end."""
    finite: list[dict[str, object]] = [{**row} for row in rows]
    finite[-1]["error_to"] = None
    return finite
