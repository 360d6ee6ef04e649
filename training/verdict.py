"""What a fine-tuning found: the errors before and after on held-back pictures, and which model is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from uepnet.model.artifact import Artifact
from uepnet.training.config import Config
from uepnet.training.data.dataset import Sample
from uepnet.training.evaluate import Result, summary
from uepnet.training.folds import Mean, mean_of


@dataclass(frozen=True)
class Verdict:
    """What came out: the errors before and after on held-back pictures, and which model is better."""

    artifact: Artifact  # of the model that is kept, with its range
    weights: Mapping[str, Tensor]
    kept: str  # "new" or "old"
    reason: str
    before: Sequence[Result]
    after: Sequence[Result]
    gain: Mean  # by which the absolute error became smaller
    empty: tuple[float, float]  # people counted in drawn empty scenes, before and after
    samples: Sequence[Sample]  # the held-back pictures, in the order of the results
    known: int  # of them, pictures that the old model was trained on
    coverage: float  # of the range, cross-validated
    config: Config  # the settings of the copies
    strength: float
    factor: float  # on all counts of the new model
    log: Sequence[dict[str, float]]

    @property
    def in_words(self) -> str:
        """The difference of the errors, as a sentence."""
        value, low, high = (
            f"{abs(people):.2f} {'smaller' if people >= 0 else 'larger'}"
            for people in (self.gain.value, *self.gain.bounds)
        )
        return f"The error in people is {value} than before (90 % bounds: {low} to {high})."

    @property
    def caveat(self) -> str:
        """What makes the numbers doubtful, as a sentence."""
        return (
            f"The old model was trained on {self.known} of the pictures. Its errors on them look smaller than they "
            "are on new ones, and its range stays as it was. Label at least 10 new pictures, or start from a model "
            "that has not seen these."
        )

    def as_json(self) -> dict[str, object]:
        low, high = self.gain.bounds
        return {
            "before": _numbers(self.before),
            "after": _numbers(self.after),
            "kept": self.kept,
            "reason": self.reason,
            "gain": {"mae": self.gain.value, "low": low, "high": high, "level": 0.9},
            "empty_scenes": {"before": self.empty[0], "after": self.empty[1]},
            "coverage": self.coverage,
            "known": self.known,
            "steps": self.config.steps,
            "strength": self.strength,
            "factor": self.factor,
        }


def _numbers(results: Sequence[Result]) -> dict[str, float | int | None]:
    """The errors, and the 90 % bounds of their mean."""
    numbers = summary(results)
    error = mean_of([abs(result.error) for result in results])
    low, high = error.bounds
    chosen = {name: numbers[name] for name in ("images", "mae", "rmse", "nae", "bias")}
    return chosen | {"mae_low": max(0.0, low), "mae_high": high}
