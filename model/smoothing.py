"""Noisy counts over time -> a smoothed count, and alerts that do not flicker.

`uepnet video`, `uepnet plot` and the service's cameras all use these two:

    median = MedianWindow(seconds=5)
    watch = LimitWatch(Hysteresis(raise_at=50, clear_below=45, for_seconds=30, cooldown_seconds=300))
    for time, count in counts:                     # time: seconds on any clock that does not run backwards
        breach = watch.update(time, median.add(time, count))
        if breach is not None:                     # only when one begins (end is None) or ends
            ...
    watch.update(time, None)                       # nothing was counted: a gap

Nothing here reads a clock, so a recording gives the same alerts as the live stream did.
"""

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, replace
from math import isfinite

from uepnet.model.errors import InputError

CLEAR_SHARE = 0.9  # of the level that raises an alert: below it the alert is cleared, unless told otherwise


class MedianWindow:
    """The median of the values of the last `seconds`; with 0 seconds the value itself.

    The window ends at the newest value, so a change shows after about half the window. Values before a gap that
    is longer than the window are forgotten.
    """

    def __init__(self, seconds: float) -> None:
        if not (isfinite(seconds) and seconds >= 0):
            raise InputError(f"The smoothing window must be 0 seconds or more, not {seconds:g}.")
        self._seconds = seconds
        self._values: deque[tuple[float, float]] = deque()  # time and value, oldest first
        self._sorted: list[float] = []

    def add(self, time: float, value: float) -> float:
        """Add the newest value; returns the median over (time - seconds, time]."""
        _check(time, value, self._values[-1][0] if self._values else time)
        while self._values and self._values[0][0] <= time - self._seconds:
            _, old = self._values.popleft()
            del self._sorted[bisect_left(self._sorted, old)]
        self._values.append((time, value))
        insort(self._sorted, value)
        if not self._seconds:
            return value
        middle = len(self._sorted) // 2
        if len(self._sorted) % 2:
            return self._sorted[middle]
        return (self._sorted[middle - 1] + self._sorted[middle]) / 2


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """When an alert is raised, when it is cleared, and how soon the next one may follow."""

    raise_at: float  # raised when the value has been this or more ...
    clear_below: float | None = None  # cleared when the value falls below this (default: 90 % of raise_at)
    for_seconds: float = 0.0  # ... for this long without a gap
    cooldown_seconds: float = 0.0  # after an alert is cleared, none is raised for this long

    def __post_init__(self) -> None:
        if not (isfinite(self.raise_at) and self.raise_at > 0):
            raise InputError(f"A limit must be above 0, not {self.raise_at:g}.")
        if self.clear_below is not None and not 0 < self.clear_below <= self.raise_at:
            raise InputError(
                f"The level that clears an alert must be above 0 and at most the limit of {self.raise_at:g}, "
                f"not {self.clear_below:g}."
            )
        for seconds in (self.for_seconds, self.cooldown_seconds):
            if not (isfinite(seconds) and seconds >= 0):
                raise InputError(f"A limit's times must be 0 seconds or more, not {seconds:g}.")

    @property
    def clear_level(self) -> float:
        return CLEAR_SHARE * self.raise_at if self.clear_below is None else self.clear_below


@dataclass(frozen=True, slots=True)
class Breach:
    """A stretch of time over a limit: what an alert tells."""

    start: float  # when the value first reached the limit; `for_seconds` before it was raised
    raised: float  # when the alert was raised
    peak: float
    peak_time: float
    end: float | None = None  # when it was cleared; None while it lasts


class LimitWatch:
    """Follows one value against one limit."""

    def __init__(self, rule: Hysteresis) -> None:
        self.rule = rule
        self.open: Breach | None = None  # the alert that is raised now
        self._pending: Breach | None = None  # reached, but not yet for long enough
        self._quiet_until: float | None = None
        self._newest: float | None = None

    def rest(self, ended: float) -> None:
        """An alert ended then, before this watch began: the next one waits for its pause, too."""
        self._quiet_until = max(self._quiet_until or 0.0, ended + self.rule.cooldown_seconds)

    def update(self, time: float, value: float | None) -> Breach | None:
        """Take the newest value, or None for a gap. Returns the breach when an alert is raised or cleared.

        A gap ends no alert and raises none; a value that has to hold for some seconds starts again after it.
        """
        _check(time, value or 0.0, time if self._newest is None else self._newest)
        self._newest = time
        if value is None:
            self._pending = None
            return None
        if self.open is not None:
            return self._while_open(self.open, time, value)
        if value < self.rule.raise_at:
            self._pending = None
            return None
        self._pending = _with(self._pending or Breach(time, time, value, time), time, value)
        quiet = self._quiet_until is not None and time < self._quiet_until
        if quiet or time - self._pending.start < self.rule.for_seconds:
            return None
        self.open, self._pending = replace(self._pending, raised=time), None
        return self.open

    def _while_open(self, breach: Breach, time: float, value: float) -> Breach | None:
        if value >= self.rule.clear_level:
            self.open = _with(breach, time, value)
            return None
        self.open, self._quiet_until = None, time + self.rule.cooldown_seconds
        return replace(breach, end=time)


def _with(breach: Breach, time: float, value: float) -> Breach:
    return replace(breach, peak=value, peak_time=time) if value > breach.peak else breach


def _check(time: float, value: float, newest: float) -> None:
    """The caller's mistakes, which would otherwise turn into wrong alerts."""
    if not (isfinite(time) and isfinite(value)):
        raise ValueError(f"time {time} and value {value} must be finite numbers")
    if time < newest:
        raise ValueError(f"time {time} lies before {newest}, which was added already")
