"""How strongly cells with a large error pull on a trained network: |dL/d output| by error (Figure 5 of the paper)."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from uepnet.model.artifact import Artifact
from uepnet.model.tiling import cut, windows
from uepnet.training.analyse import at_network_scale
from uepnet.training.data.dataset import Sample
from uepnet.training.data.targets import Kernel
from uepnet.training.inference_graph import normalise
from uepnet.training.losses import TrainingLoss

EDGES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, float("inf"))  # people per cell

Values = NDArray[np.float64]


def gradients_by_error(
    samples: Sequence[Sample], network: nn.Module, artifact: Artifact, kernel: Kernel | None = None
) -> list[dict[str, float]]:
    """For cells whose error is `error_from` to `error_to`: their number, mean gradient and share of all gradient.

    The gradient of a cell is the sum of |dL/d output| over the outputs of a head, the mean over the heads; the loss is
    the cross-entropy, or the squared error of a regression, of that cell.
    """
    errors, gradients = [], []
    for sample in samples:
        for error, gradient in _cells(sample, network, artifact, kernel):
            errors.append(error)
            gradients.append(gradient)
    error, gradient = np.concatenate(errors), np.concatenate(gradients)
    total = gradient.sum() or 1.0
    rows = []
    for low, high in pairwise(EDGES):
        chosen = gradient[(error >= low) & (error < high)]
        mean = float(chosen.mean()) if chosen.size else 0.0
        share = float(chosen.sum() / total)
        rows.append({"error_from": low, "error_to": high, "cells": chosen.size, "mean_gradient": mean, "share": share})
    return rows


def _cells(
    sample: Sample, network: nn.Module, artifact: Artifact, kernel: Kernel | None
) -> list[tuple[Values, Values]]:
    """(errors, gradients) of the cells of each window of an image."""
    image, counts = at_network_scale(sample, artifact, kernel)
    height, width = image.shape[:2]
    truth = torch.from_numpy(counts)
    mean, std = torch.tensor(artifact.normalisation.mean), torch.tensor(artifact.normalisation.std)
    tiling, padding = artifact.tiling, artifact.normalisation.padding
    found = []
    for window in windows(width, height, tiling.tile, tiling.halo, artifact.cell, artifact.multiple):
        tile = torch.from_numpy(np.array(cut(image, window, padding), order="C"))[None]
        with torch.inference_mode():
            outputs = network(normalise(tile, mean, std))
        own = [output[(..., *window.inner)].clone() for output in outputs]
        found.append(_errors_and_gradients(own, truth[window.owned][None], artifact))
    return found


def _errors_and_gradients(outputs: Sequence[Tensor], counts: Tensor, artifact: Artifact) -> tuple[Values, Values]:
    """outputs: one [1, channels, rows, columns] per head; counts: [1, rows, columns]."""
    leaves = [output.clone().requires_grad_() for output in outputs]
    # The loss is a mean over cells: times their number, the gradient is that of each cell's own loss.
    loss = TrainingLoss(artifact, 0.0, _trained_with_relu(artifact))(leaves, counts)["loss"] * counts.numel()
    gradients = torch.autograd.grad(loss, leaves)
    size = torch.stack([gradient.abs().sum(1) for gradient in gradients]).mean(0)
    if artifact.decoding == "regression":
        counted = outputs[0][:, 0].clamp(min=0)
    else:
        proxies = [torch.tensor(head.proxies, dtype=torch.float32) for head in artifact.heads]
        decoded = [values[scores.argmax(1)] for values, scores in zip(proxies, outputs, strict=True)]
        counted = torch.stack(decoded).mean(0)
    error = (counted - counts).abs()
    return error.flatten().double().numpy(), size.flatten().double().numpy()


def _trained_with_relu(artifact: Artifact) -> bool:
    """Negative outputs of such a regression got no gradient in training, and get none here."""
    return bool(artifact.training.get("settings", {}).get("output_relu", False))


def plot_gradients(runs: Mapping[str, Sequence[dict[str, float]]], path: Path) -> None:
    """The mean gradient of a cell and the share of all gradient, by error; a bar for each run side by side."""
    from matplotlib.figure import Figure

    from uepnet.model.outputs import picture_format, whole_file

    figure = Figure(figsize=(9, 7), layout="constrained")
    means, shares = figure.subplots(2, 1, sharex=True)
    places, width = np.arange(len(EDGES) - 1), 0.8 / len(runs)
    for index, (name, rows) in enumerate(runs.items()):
        beside = places + (index - (len(runs) - 1) / 2) * width
        means.bar(beside, [row["mean_gradient"] or np.nan for row in rows], width, label=name)
        shares.bar(beside, [100 * row["share"] for row in rows], width)
    means.set(ylabel="mean |dL / d output| of a cell", yscale="log")
    means.legend()
    shares.set(ylabel="share of all gradient, %", xlabel="error of the cell, people", xticks=places)
    shares.set_xticklabels([f"{low:g} to {high:g}" for low, high in pairwise(EDGES)])
    with whole_file(path) as file:
        figure.savefig(file, dpi=120, format=picture_format(path))
