"""The learning rate over the steps of a run."""

import math
from dataclasses import dataclass

from uepnet.training.config import Config


@dataclass
class Schedule:
    """The learning rate: a function of the step (cosine), or of the training loss so far (plateau)."""

    config: Config
    rate: float = 0.0
    window: int = 1000  # steps whose mean loss is compared
    patience: int = 3  # windows without improvement before the rate falls
    total: float = 0.0
    seen: int = 0
    best: float = math.inf
    waited: int = 0

    def __post_init__(self) -> None:
        self.rate = self.rate or self.config.lr

    def at(self, step: int) -> float:
        config = self.config
        warm = min(1.0, (step + 1) / config.warm_up) if config.warm_up else 1.0
        if config.schedule == "plateau":
            return self.rate * warm
        done = max(0, step - config.warm_up) / max(1, config.steps - config.warm_up)
        return config.lr * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def saw(self, loss: float) -> None:
        self.total, self.seen = self.total + loss, self.seen + 1
        if self.seen < self.window:
            return
        mean, self.total, self.seen = self.total / self.seen, 0.0, 0
        self.waited = 0 if mean < self.best * 0.999 else self.waited + 1
        self.best = min(self.best, mean)
        if self.waited >= self.patience:
            self.rate, self.waited = self.rate / 10, 0

    @property
    def over(self) -> bool:
        return self.config.schedule == "plateau" and self.rate < self.config.lr * 2e-4

    def state(self) -> dict[str, float]:
        return {key: getattr(self, key) for key in ("rate", "total", "seen", "best", "waited")}
