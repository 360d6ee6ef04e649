"""Counts on disk: one JSON object a line, a line a frame or gap, written as it goes.

A line is a counted frame

    {"frame": 12, "timestamp": 0.48, "camera": "gate", "count": 31.2, "range": {...}, "zones": [...], ...}

or a gap, where nothing is known

    {"frame": 13, "timestamp": 0.52, "camera": "gate", "gap": "the frame is damaged"}

Nothing in it depends on how fast or in how many goes it was written: a resumed file equals an unbroken one.
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from uepnet.model.errors import InputError, OutputError

Record = dict[str, Any]


class Sink(Protocol):
    def kept(self) -> Iterator[Record]:
        """The records that were there on opening, oldest first."""

    def write(self, record: Record) -> None: ...

    def close(self) -> None: ...


class Recording:
    """A JSONL file, appended to line by line: a line is with the system before the next one is written."""

    def __init__(self, path: Path, resume: bool = False, overwrite: bool = False) -> None:
        self.path = path
        if path.is_file() and path.stat().st_size and not resume and not overwrite:
            raise InputError(f"{path} exists: --resume goes on with it, --overwrite begins anew.")
        self._resumed = resume and path.is_file()
        try:
            self._file = path.open("r+b" if self._resumed else "wb", buffering=0)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}.") from None
        self._end = _whole_lines(path) if self._resumed else 0
        self._cut()

    def kept(self) -> Iterator[Record]:
        return read_records(self.path) if self._resumed else iter(())

    def write(self, record: Record) -> None:
        """Append one line, whole or not at all."""
        line = memoryview(to_line(record))
        written = 0
        try:
            while written < len(line):  # a disk that fills up takes a part first
                written += self._file.write(line[written:])
        except OSError as error:
            self._cut()
            raise OutputError(
                f"{self.path} cannot be written further ({error.strerror}); what it holds is kept."
            ) from None
        self._end += written

    def close(self) -> None:
        self._file.close()
        if not self._end and self.path.is_file():
            self.path.unlink()  # an empty recording would only stand in the way of the next try

    def _cut(self) -> None:
        """Drop what is no whole line. (A pipe or a device has no end to cut at.)"""
        if self.path.is_file():
            self._file.truncate(self._end)
            self._file.seek(self._end)


class StandardOutput:
    """Records to standard output: nothing is kept, nothing can be resumed."""

    def kept(self) -> Iterator[Record]:
        return iter(())

    def write(self, record: Record) -> None:
        sys.stdout.buffer.write(to_line(record))
        sys.stdout.buffer.flush()

    def close(self) -> None:
        pass


def to_line(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def read_records(path: Path) -> Iterator[Record]:
    """A recording's lines, one at a time. A last line without its end is left out: its writer was killed."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _parsed(line, f"{path}, line {number}")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def moment_text(record: Record) -> str:
    """When a record was, for people: the time of day of a live one, else the time since the beginning."""
    return str(record["time"]) if "time" in record else time_text(record["timestamp"])


def time_text(second: float) -> str:
    """[H:]MM:SS"""
    hours, minutes, seconds = int(second // 3600), int(second // 60 % 60), int(second % 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


def write_csv(records: Iterable[Record], path: Path, zone_names: Sequence[str] = ()) -> None:
    """The same as a table: a column a zone; a gap leaves the count empty."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            columns = ["camera", "frame", "timestamp", "time", "count", "low", "high", "gap"]
            writer.writerow(columns + [f"zone {name}" for name in zone_names])
            for record in records:
                bounds = record.get("range") or {}
                zones = {zone["name"]: zone["count"] for zone in record.get("zones", ())}
                row = {**record, "low": bounds.get("low"), "high": bounds.get("high")}
                writer.writerow([row.get(name) for name in columns] + [zones.get(name) for name in zone_names])
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from None


def _whole_lines(path: Path) -> int:
    """The size of a file up to and with its last line end."""
    with path.open("rb") as file:
        return sum(len(line) for line in file if line.endswith(b"\n"))


def _parsed(line: bytes, place: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not {"frame", "timestamp"} <= record.keys():
        raise InputError(f"{place} is not a count as `uepnet video` writes them.")
    if "count" not in record and "gap" not in record:
        raise InputError(f"{place} holds neither a count nor a gap.")
    return record
