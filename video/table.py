"""Recordings as a CSV table: a row per frame, or per minute or hour."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Literal, get_args

from uepnet.model.outputs import whole_text
from uepnet.video.recording import Record, local_time, time_text

Per = Literal["frame", "minute", "hour"]
PERIODS: tuple[Per, ...] = get_args(Per)
SECONDS = {"minute": 60, "hour": 3600}


def write_table(records: Iterable[Record], path: Path, zone_names: Sequence[str] = (), per: Per = "frame") -> None:
    """Write the table as a whole. Times on the clock are local, with their distance from UTC."""
    with whole_text(path) as file:
        writer = csv.writer(file)
        rows = _frames(records, zone_names) if per == "frame" else _periods(records, zone_names, per)
        writer.writerows(rows)


def _frames(records: Iterable[Record], zone_names: Sequence[str]) -> Iterator[Sequence[object]]:
    columns = ["camera", "frame", "timestamp", "time", "count", "smoothed", "low", "high", "gap"]
    yield [*columns, *(f"zone {name}" for name in zone_names), "warnings"]
    for record in records:
        bounds = record.get("range") or {}
        zones = {zone["name"]: zone["count"] for zone in record.get("zones", ())}
        row = {**record, "low": bounds.get("low"), "high": bounds.get("high")}
        if "time" in record:
            row["time"] = local_time(record).isoformat(timespec="milliseconds")
        warnings = " ".join(record.get("warnings", ())) or None
        yield [*(row.get(name) for name in columns), *(zones.get(name) for name in zone_names), warnings]


@dataclass
class _Numbers:
    """The counts of one period; a period without any has empty cells, never zeros."""

    values: list[float] = field(default_factory=list)

    def cells(self) -> list[object]:
        if not self.values:
            return [None, None, None]
        return [math.fsum(self.values) / len(self.values), min(self.values), max(self.values)]


def _periods(records: Iterable[Record], zone_names: Sequence[str], per: Per) -> Iterator[Sequence[object]]:
    columns = ["camera", "start", "frames", "gaps", "mean", "min", "max"]
    zone_columns = [f"zone {name} {what}" for name in zone_names for what in ("mean", "min", "max")]
    yield [*columns, *zone_columns, "frames with warnings"]
    seconds = SECONDS[per]
    for (camera, start), group in groupby(records, lambda record: (record.get("camera"), _start(record, seconds))):
        everything, gaps, warned = _Numbers(), 0, 0
        zones = {name: _Numbers() for name in zone_names}
        for record in group:
            if "gap" in record:
                gaps += 1
                continue
            everything.values.append(record["count"])
            warned += bool(record.get("warnings"))
            for zone in record.get("zones", ()):
                if zone["name"] in zones:
                    zones[zone["name"]].values.append(zone["count"])
        row: list[object] = [camera, start, len(everything.values), gaps, *everything.cells()]
        yield [*row, *(cell for name in zone_names for cell in zones[name].cells()), warned]


def _start(record: Record, seconds: int) -> str:
    """When the period began: on the local clock, or since the beginning."""
    if "time" not in record:
        return time_text(record["timestamp"] // seconds * seconds)
    moment: datetime = local_time(record)
    into = (moment.minute * 60 + moment.second) % seconds
    return (moment - timedelta(seconds=into)).isoformat(timespec="minutes")
