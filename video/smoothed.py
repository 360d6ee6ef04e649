"""Counts of a recording -> smoothed counts, for the total and for each zone."""

from typing import Any

from uepnet.model.errors import InputError
from uepnet.model.smoothing import Breach, Hysteresis, LimitWatch, MedianWindow
from uepnet.video.recording import Record

ALERT_SMOOTH_SECONDS = 5.0  # so that counts of single frames, which are noisy, do not raise and clear alerts


class Smoother:
    """Adds `smoothed` to records. A clock that is set back stands still here until it has caught up."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._windows: dict[str | None, MedianWindow] = {}
        self._newest = float("-inf")

    def add(self, record: Record) -> Record:
        if "count" not in record:
            return record
        self._newest = max(self._newest, record["timestamp"])
        zones = [{**zone, "smoothed": self._value(zone["name"], zone["count"])} for zone in record["zones"]]
        return {**record, "smoothed": self._value(None, record["count"]), "zones": zones}

    def check(self, record: Record) -> None:
        """Take a record that was written before; it must be smoothed in the same way."""
        if "count" in record and self.add(_raw(record)) != record:
            raise InputError("The recording was made with another --smooth.")

    def _value(self, zone: str | None, count: float) -> float:
        window = self._windows.setdefault(zone, MedianWindow(self._seconds))
        return window.add(self._newest, count)


class RecordWatch:
    """Follows the smoothed counts of a recording against a limit; where it has none, the median of 5 seconds."""

    def __init__(self, rule: Hysteresis) -> None:
        self._watch = LimitWatch(rule)
        self._window = MedianWindow(ALERT_SMOOTH_SECONDS)
        self._newest = float("-inf")

    @property
    def open(self) -> Breach | None:
        """The alert that lasts."""
        return self._watch.open

    def update(self, seconds: float, count: float | None, smoothed: float | None) -> Breach | None:
        """Take the counts of a moment, None in a gap. Returns the breach when an alert is raised or cleared."""
        self._newest = max(self._newest, seconds)
        if count is not None and smoothed is None:
            smoothed = self._window.add(self._newest, count)
        return self._watch.update(self._newest, smoothed)


def best_count(record: Record) -> float | None:
    """The smoothed count where there is one; None for a gap."""
    count: float | None = record.get("smoothed", record.get("count"))
    return count


def _raw(record: Record) -> dict[str, Any]:
    zones = [{key: value for key, value in zone.items() if key != "smoothed"} for zone in record["zones"]]
    return {key: value for key, value in record.items() if key != "smoothed"} | {"zones": zones}
