"""Time: what a picture and a step cost on this machine, how many steps fit, and how long is left."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

EXPORT_SHARE = 0.12  # of the time, for writing and comparing the model
MEASURE_SHARE = 0.3  # of the time, at most, for counting pictures before and after


@dataclass(frozen=True)
class WorkLeft:
    """What is being done, and how many seconds are left, as far as is known."""

    text: str
    done: float  # share of the work, from 0 to 1
    seconds_left: float


@dataclass
class Pace:
    """Keeps the books: units of work done and to do, of two kinds, `picture` and `step`."""

    minutes: float
    watch: Callable[[WorkLeft], None] = lambda _: None
    started: float = field(default_factory=time.monotonic)
    cost: dict[str, float] = field(default_factory=dict)  # seconds of one unit
    left: dict[str, int] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        """Seconds of the work that is planned; all that is left of the minutes until the steps are."""
        planned = self._cost_of("picture", "step") + EXPORT_SHARE * 60 * self.minutes
        return planned if "step" in self.left else max(planned, 60 * self.minutes - self.elapsed)

    def _cost_of(self, *kinds: str) -> float:
        return sum(self.left.get(kind, 0) * self.cost.get(kind, 0.0) for kind in kinds)

    def plan(self, kind: str, number: int) -> None:
        """So many units are left to do."""
        self.left[kind] = number

    def did(self, kind: str, seconds: float, text: str) -> None:
        """One unit is done; a slower or faster machine shows in the next estimate."""
        known = self.cost.get(kind)
        self.cost[kind] = seconds if known is None else 0.9 * known + 0.1 * seconds
        if kind in self.left:
            self.left[kind] = max(0, self.left[kind] - 1)
        self.say(text)

    def say(self, text: str) -> None:
        remaining = self.remaining
        self.watch(WorkLeft(text, self.elapsed / (self.elapsed + remaining), remaining))

    def pictures(self, number: int, rounds: int, least: int, most: int) -> int:
        """How many of `number` pictures can be counted `rounds` times in their share of the time."""
        fit = int(MEASURE_SHARE * 60 * self.minutes / (rounds * max(1e-6, self.cost["picture"])))
        return min(number, most, max(least, fit))

    def steps(self, wanted: int, runs: int, least: int) -> int:
        """How many steps each of `runs` more trainings can take; `least` even if the time is too short for them."""
        rest = 60 * (1 - EXPORT_SHARE) * self.minutes - self.elapsed - self._cost_of("picture")
        return max(least, min(wanted, int(rest / (runs * max(1e-6, self.cost["step"])))))
