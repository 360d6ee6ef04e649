"""Recordings as columns: what is drawn over time, when a limit was exceeded, and the sum over cameras."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from math import isnan, nan
from pathlib import Path
from statistics import median

from uepnet.model.errors import InputError
from uepnet.model.smoothing import Breach, Hysteresis, MedianWindow
from uepnet.video.damage import PAUSE_SECONDS
from uepnet.video.recording import Record, read_records, time_text
from uepnet.video.smoothed import RecordWatch


@dataclass
class Series:
    """One recording as columns. A gap is a row of NaN: lines and bands break there."""

    label: str
    seconds: list[float] = field(default_factory=list)  # since 1970 on a clock, else since the first frame
    count: list[float] = field(default_factory=list)
    smoothed: list[float] = field(default_factory=list)  # NaN throughout where nothing was smoothed
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    zones: dict[str, list[float]] = field(default_factory=dict)
    clock: bool = False
    level: float | None = None  # of the range
    named: bool = False  # after a camera, not after a file

    def add(self, record: Record) -> None:
        bounds = record.get("range") or {}
        zones = {zone["name"]: zone.get("smoothed", zone["count"]) for zone in record.get("zones", ())}
        for name in zones:
            self.zones.setdefault(name, [nan] * len(self.seconds))
        self.clock = self.clock or "time" in record
        self.seconds.append(_seconds(record))
        self.count.append(record.get("count", nan))
        self.smoothed.append(record.get("smoothed", nan))
        self.low.append(bounds.get("low", nan))
        self.high.append(bounds.get("high", nan))
        self.level = bounds.get("level", self.level)
        for name, counts in self.zones.items():
            counts.append(zones.get(name, nan))

    @property
    def best(self) -> list[float]:
        """The smoothed counts, where there are any."""
        return self.count if all(map(isnan, self.smoothed)) else self.smoothed

    def follow_with(self, later: "Series") -> None:
        """Append a later recording of the same camera; the time between the two is a gap unless it is short."""
        steps = [after - before for before, after in pairwise(self.seconds)]
        pause = later.seconds[0] - self.seconds[-1]
        parts = [_gap_after(self)] if pause > max(PAUSE_SECONDS, 3 * median(steps or [0.0])) else []
        for part in (*parts, later):
            for name in part.zones:
                self.zones.setdefault(name, [nan] * len(self.seconds))
            for name, counts in self.zones.items():
                counts += part.zones.get(name, [nan] * len(part.seconds))
            for column in ("seconds", "count", "smoothed", "low", "high"):
                getattr(self, column).extend(getattr(part, column))
            self.level = part.level or self.level

    def smooth(self, seconds: float) -> None:
        window, newest = MedianWindow(seconds), float("-inf")
        for index, (second, count) in enumerate(zip(self.seconds, self.count, strict=True)):
            newest = max(newest, second)
            self.smoothed[index] = nan if isnan(count) else window.add(newest, count)

    def moment(self, second: float) -> str:
        """A moment of this recording, for people: local time, or the time since the first frame."""
        if self.clock:
            return datetime.fromtimestamp(second).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        tenth = int(10 * second) % 10  # otherwise a short stretch would end when it began
        return time_text(second) + (f".{tenth}" if tenth else "")


def load_series(path: Path) -> list[Series]:
    """The cameras of a recording, each a series; one without a camera is named after its file."""
    found: dict[str, Series] = {}
    for record in read_records(path):
        label = record.get("camera") or path.name.removesuffix(".jsonl")
        found.setdefault(label, Series(label, named="camera" in record)).add(record)
    if not found:
        raise InputError(f"{path} holds no counts.")
    return list(found.values())


def load_all(paths: Iterable[Path]) -> list[Series]:
    """The cameras of many recordings. Recordings of one camera that follow each other on the clock are one series."""
    answer: list[Series] = []
    newest: dict[str, Series] = {}
    found = [line for path in paths for line in load_series(path)]
    for line in sorted(found, key=lambda line: line.seconds[0]):
        before = newest.get(line.label) if line.named and line.clock else None
        if before is not None and line.seconds[0] > before.seconds[-1]:
            before.follow_with(line)
            continue
        answer.append(line)
        if line.named and line.clock:
            newest[line.label] = line
    order = {id(line): number for number, line in enumerate(found)}
    return sorted(answer, key=lambda line: order[id(line)])


def breaches(series: Series, rule: Hysteresis) -> list[Breach]:
    """The stretches of the smoothed count over a limit. The last may still last (end None)."""
    watch, found = RecordWatch(rule), []
    for second, *counts in zip(series.seconds, series.count, series.smoothed, strict=True):
        count, smoothed = (None if isnan(value) else value for value in counts)
        breach = watch.update(second, count, smoothed)
        if breach is not None and breach.end is not None:
            found.append(breach)
    return [*found, watch.open] if watch.open is not None else found


def total(series: Sequence[Series]) -> Series:
    """The sum over cameras, at every moment at which one of them was counted.

    Each camera's newest count stands until its next one. Where a camera has a gap or was not counted for much longer
    than usual, the sum is not known: never a smaller number.
    """
    if len({line.clock for line in series}) > 1:
        raise InputError("A sum needs recordings with a clock, or recordings without one, not both (see --began).")
    held = [_Held(line) for line in series]
    answer = Series("sum", clock=series[0].clock)
    for second in sorted({second for line in series for second in line.seconds}):
        values = [line.at(second) for line in held]
        answer.seconds.append(second)
        answer.count.append(sum(values))
        for column in (answer.smoothed, answer.low, answer.high):
            column.append(nan)
    return answer


class _Held:
    """A camera's newest count at any moment; NaN where it is too old or a gap."""

    def __init__(self, line: Series) -> None:
        rows = sorted(zip(line.seconds, line.best, strict=True), key=lambda row: row[0])
        self._seconds, self._counts = [row[0] for row in rows], [row[1] for row in rows]
        steps = [after - before for before, after in zip(self._seconds, self._seconds[1:], strict=False)]
        self._valid = max(3 * median(steps) if steps else 0.0, 1.0)

    def at(self, second: float) -> float:
        index = bisect_right(self._seconds, second) - 1
        if index < 0 or second - self._seconds[index] > self._valid:
            return nan
        return self._counts[index]


def _gap_after(line: Series) -> Series:
    return Series(line.label, [line.seconds[-1] + 0.001], [nan], [nan], [nan], [nan])


def _seconds(record: Record) -> float:
    return datetime.fromisoformat(record["time"]).timestamp() if "time" in record else float(record["timestamp"])
