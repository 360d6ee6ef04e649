"""Training runs side by side: different settings, the course of loss and validation error, and which run counts better.

A run that is still training, or was killed, is read up to its last logged step.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uepnet.model.artifact import FILE, Artifact
from uepnet.model.errors import DataError
from uepnet.model.outputs import picture_format, whole_file
from uepnet.training.config import Config
from uepnet.training.evaluate import Result
from uepnet.training.folds import Mean, mean_of

LOG = "metrics.jsonl"
LAST = 0.1  # of the logged steps: their mean loss is "the loss"
SMOOTH, SMOOTH_LEAST = 0.05, 10  # of the logged steps, and steps at least: the curve is their running mean
FEW_STEPS = 20  # logged
COLOURS = ("#31688e", "#d1495b", "#8fb339", "#6c4f9c", "#c98a1b", "#444444")
Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Course:
    """A run's settings, and what it logged."""

    name: str
    config: Config
    loss: tuple[Curve, ...]  # one for each copy of a fine-tuning, else one
    error: Curve  # the validation error, after as many steps
    metrics: dict[str, float]

    @property
    def done(self) -> int:
        """Steps, as far as they are logged."""
        return max((curve[-1][0] for curve in self.loss if curve), default=0)

    @property
    def last_loss(self) -> float | None:
        ends = [value for curve in self.loss for _, value in curve[-max(1, round(LAST * len(curve))) :]]
        return float(np.mean(ends)) if ends else None


def course(run: Path) -> Course:
    config = Config.read(run)
    rows = _rows(run / LOG)
    copies = sorted({row.get("copy", 0.0) for row in rows if "loss" in row})
    loss = tuple([(row["step"], row["loss"]) for row in rows if row.get("copy", 0.0) == copy and "loss" in row]
                 for copy in copies)  # fmt: skip
    errors = ("val_mae", "train_mae")  # a run on all images has none that it did not see
    error = [(row["step"], row[name]) for row in rows for name in errors if name in row]
    metrics = Artifact.load(run).metrics if (run / FILE).is_file() else {}
    return Course(str(run), config, loss, error, metrics)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The lines of the log; the last one may be incomplete while the run writes it."""
    try:
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a log of training: {error}.") from None


def differences(courses: Sequence[Course]) -> dict[str, list[Any]]:
    """The settings in which the runs differ: name -> each run's value."""
    settings = [course.config.model_dump(mode="json") for course in courses]
    return {
        name: [values[name] for values in settings]
        for name in settings[0]
        if any(values[name] != settings[0][name] for values in settings)
    }


def gain(first: Sequence[Result], other: Sequence[Result]) -> Mean:
    """By how much the other run's mean absolute error is smaller, on the same pictures in their order."""
    return mean_of([abs(left.error) - abs(right.error) for left, right in zip(first, other, strict=True)])


def verdict(first: str, other: str, gained: Mean) -> str:
    low, high = gained.bounds
    if low <= 0 <= high:
        bounds = f"({low:+.2f} to {high:+.2f} at 90 %)"
        return f"These pictures do not show which of {first} and {other} counts better {bounds}."
    word, change = ("better", "smaller") if low > 0 else ("worse", "larger")
    least, most = sorted((abs(low), abs(high)))
    bounds = f"{abs(gained.value):.2f} people ({least:.2f} to {most:.2f} at 90 %)"
    return f"{other} counts {word} than {first}: its mean error is {change} by {bounds}."


def plot_curves(courses: Sequence[Course], path: Path) -> None:
    """The training loss of each run, and the validation error where a run has one."""
    from matplotlib.figure import Figure

    validated = any(course.error for course in courses)
    figure = Figure(figsize=(9, 6 if validated else 4), layout="constrained")
    axes = figure.subplots(2 if validated else 1, 1, sharex=True, squeeze=False)[:, 0]
    for index, course in enumerate(courses):
        colour = COLOURS[index % len(COLOURS)]
        for number, curve in enumerate(course.loss):
            steps, values = np.array(curve).T
            label = course.name if not number else None
            marker = "o" if len(curve) < FEW_STEPS else ""  # a line of one step would not be seen
            axes[0].plot(steps, _smooth(values), color=colour, linewidth=1.2, marker=marker, markersize=3, label=label)
        if course.error:
            axes[-1].plot(*np.array(course.error).T, color=colour, marker="o", markersize=3, label=course.name)
    axes[0].set(yscale="log", ylabel="training loss")
    if validated:
        axes[-1].set(ylabel="validation error, people per image")
    axes[-1].set(xlabel="step")
    axes[0].legend()
    with whole_file(path) as file:
        figure.savefig(file, dpi=120, format=picture_format(path))


def _smooth(values: np.ndarray) -> np.ndarray:
    """The running mean of the values so far, over a window that is cut at the ends."""
    width = max(SMOOTH_LEAST, round(SMOOTH * len(values)))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
