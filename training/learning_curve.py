"""How a run learned: loss, learning rate and error over the steps, from its metrics.jsonl; stopped runs included."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

from uepnet.model.errors import InputError

POINTS = 200  # the loss of a step is noisy: the curve has means of so many stretches of the run


class Stretch(TypedDict):
    """The steps up to a validation, or up to the end of the log. Errors are None without a validation."""

    step: int
    loss: float | None
    lr: float | None
    mae: float | None
    rmse: float | None


Line = dict[str, Any]  # of metrics.jsonl


def read_log(run: Path) -> list[Line]:
    """The lines of metrics.jsonl; the last one may be unfinished while the run is under way."""
    path = run / "metrics.jsonl"
    try:
        lines = path.read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
    except FileNotFoundError:
        raise InputError(f"{run} is not a training run: it has no metrics.jsonl.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None
    if not found:
        raise InputError(f"{path} is still empty: the first line comes after ten steps.")
    return found


def stretches(log: Sequence[Line]) -> list[Stretch]:
    """The mean loss between validations, and the errors that they found."""
    ends = [line for line in log if line["kind"] == "val"]
    if not ends or ends[-1]["step"] < log[-1]["step"]:
        ends.append({"step": log[-1]["step"]})
    rows: list[Stretch] = []
    for before, end in pairwise([{"step": 0}, *ends]):
        steps = [line for line in log if line["kind"] == "train" and before["step"] < line["step"] <= end["step"]]
        mae, rmse = (next((end[key] for key in end if key.endswith(name)), None) for name in ("_mae", "_rmse"))
        loss, rate = (_mean(steps), steps[-1]["lr"]) if steps else (None, None)
        rows.append({"step": end["step"], "loss": loss, "lr": rate, "mae": mae, "rmse": rmse})
    return rows


def _mean(lines: Sequence[Line]) -> float:
    return math.fsum(line["loss"] for line in lines) / len(lines)


def plot_learning(log: Sequence[Line], path: Path) -> None:
    """The loss with the learning rate, and below it the errors of the validations."""
    from matplotlib.figure import Figure

    from uepnet.model.outputs import picture_format, whole_file

    figure = Figure(figsize=(9, 7), layout="constrained")
    top, below = figure.subplots(2, 1, sharex=True)
    train = [line for line in log if line["kind"] == "train"]
    size = max(1, len(train) // POINTS)
    groups = [train[start : start + size] for start in range(0, len(train), size)]
    top.plot([group[-1]["step"] for group in groups], [_mean(group) for group in groups], color="#31688e")
    top.set(ylabel="training loss")
    rate = top.twinx()
    rate.plot([line["step"] for line in train], [line["lr"] for line in train], color="#999999", linewidth=1)
    rate.set(ylabel="learning rate (grey)", yscale="log")
    errors = [line for line in log if line["kind"] == "val"]
    for name, colour in (("mae", "#31688e"), ("rmse", "#d1495b")):
        for measured, on in (("val", "validation images"), ("train", "images that it trains on, too")):
            points = [(line["step"], line[f"{measured}_{name}"]) for line in errors if f"{measured}_{name}" in line]
            if points:
                below.plot(*zip(*points, strict=True), "o-", color=colour, label=f"{name.upper()}, {on}")
    if below.lines:
        below.legend()
    below.set(xlabel="step", ylabel="error, people", ylim=(0, None))
    with whole_file(path) as file:
        figure.savefig(file, dpi=120, format=picture_format(path))
