"""Counts on disk: JSON lines, one per counted frame or gap, each written as soon as it is known.

A line is a counted frame

    {"frame": 12, "timestamp": 0.48, "camera": "gate", "count": 31.2, "range": {...}, "zones": [...], ...}

or a gap, where nothing is known

    {"frame": 13, "timestamp": 0.52, "camera": "gate", "gap": "the frame is damaged"}

A line does not depend on how fast the file was written or how often it was resumed: a resumed file is equal to one
that was written without a break.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Protocol, cast

from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, ValidationError

from uepnet.model.errors import InputError, OutputError
from uepnet.model.outputs import open_log, write_all
from uepnet.model.validation import first_complaint

Record = dict[str, Any]
MAX_LINE_BYTES = 1 << 24  # of a record; /dev/zero has no end of a line
LINE_START = b'{"frame": '


def _with_time_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("it has no time zone")
    return text


class _Bounds(BaseModel):
    low: FiniteFloat
    high: FiniteFloat
    level: FiniteFloat


class _ZoneCount(BaseModel):
    name: str
    count: FiniteFloat


class _Line(BaseModel):
    """The fields of a record that are read again; there may be others."""

    frame: int
    timestamp: Annotated[FiniteFloat, Field(ge=-1e11, le=1e11)]
    time: Annotated[str, AfterValidator(_with_time_zone)] = "1970-01-01T00:00:00Z"
    camera: str = ""
    count: FiniteFloat = 0.0
    smoothed: FiniteFloat = 0.0
    range: _Bounds | None = None
    zones: list[_ZoneCount] = []
    warnings: list[str] = []
    model: dict[str, str] = {}
    dropped: int = 0
    gap: str = ""


class Sink(Protocol):
    def kept(self) -> Iterator[Record]:
        """The records that were there on opening, oldest first."""

    def write(self, record: Record) -> None: ...

    def close(self) -> None: ...


class Recording:
    """A JSONL file. Each line is handed to the system before the next one is written.

    Nothing is changed on opening: the file is created, emptied or cut after its last whole line when the first
    record is written.
    """

    def __init__(self, path: Path, resume: bool = False, overwrite: bool = False) -> None:
        self.path = path
        if path.exists() and not resume and not overwrite:
            raise InputError(f"{path} exists: --resume continues it, --overwrite replaces it.")
        self._resumed = resume and path.exists()
        self._end = _whole_lines(path) if self._resumed else 0
        self._file: BinaryIO | None = None

    def kept(self) -> Iterator[Record]:
        return read_records(self.path) if self._resumed else iter(())

    def write(self, record: Record) -> None:
        """Append one line, or nothing at all."""
        try:
            self._file = self._file or self._open()
            self._end += write_all(self._file, to_line(record))
        except OSError as error:
            if self._file is None:
                raise OutputError(f"{self.path} cannot be written: {error.strerror}.") from None
            self._cut(self._file)
            raise OutputError(
                f"{self.path} cannot be written further ({error.strerror}); the lines before are kept."
            ) from None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> BinaryIO:
        file = cast(BinaryIO, self.path.open("r+b" if self._resumed else "wb", buffering=0))
        self._cut(file)
        return file

    def _cut(self, file: BinaryIO) -> None:
        """Remove what follows the last whole line."""
        if self.path.is_file():
            file.truncate(self._end)
            file.seek(self._end)


class Stream:
    """Records to a pipe, a device or standard output (`-`). With `copy` they are also kept there, for tables."""

    def __init__(self, path: Path, copy: Recording | None = None) -> None:
        self._path, self._copy = path, copy
        self._file: BinaryIO | None = None

    def kept(self) -> Iterator[Record]:
        return iter(())

    def write(self, record: Record) -> None:
        try:
            self._file = self._file or open_log(self._path)
            write_all(self._file, to_line(record))
        except BrokenPipeError:
            raise
        except OSError as error:
            name = "Standard output" if str(self._path) == "-" else self._path
            raise OutputError(f"{name} cannot be written further ({error.strerror}).") from None
        if self._copy is not None:
            self._copy.write(record)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._copy is not None:
            self._copy.close()


def to_line(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def read_records(path: Path) -> Iterator[Record]:
    """A recording's lines, one at a time. A last line without its end is left out: the writer was killed."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), 1):
                if line.endswith(b"\n") or len(line) == MAX_LINE_BYTES:
                    yield _parsed(line, f"{path}, line {number}")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def moment_text(record: Record) -> str:
    """When a record was, for people: the local time of day where it is known, else the time since the beginning."""
    return local_time(record).strftime("%Y-%m-%d %H:%M:%S") if "time" in record else time_text(record["timestamp"])


def local_time(record: Record) -> datetime:
    return datetime.fromisoformat(record["time"]).astimezone()


def time_text(second: float) -> str:
    """[H:]MM:SS"""
    hours, minutes, seconds = int(second // 3600), int(second // 60 % 60), int(second % 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


def _whole_lines(path: Path) -> int:
    """The size of a recording up to its last line end. A rest that no killed writer left is refused."""
    try:
        with path.open("rb") as file:
            end, rest = 0, b""
            for line in file:
                if line.endswith(b"\n"):
                    end += len(line)
                else:
                    rest = line[: len(LINE_START)]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    if not LINE_START.startswith(rest):
        raise InputError(f"{path} cannot be resumed: it is not a recording of `uepnet video`.")
    return end


def _parsed(line: bytes, place: str) -> Record:
    """The record as it was written; what reads it may rely on the types of its fields."""
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not {"frame", "timestamp"} <= record.keys():
        raise InputError(f"{place} is not a record of `uepnet video`.")
    if "count" not in record and "gap" not in record:
        raise InputError(f"{place} holds neither a count nor a gap.")
    try:
        _Line.model_validate(record)
    except ValidationError as error:
        field, complaint = first_complaint(error)
        raise InputError(f"{place} is not a record of `uepnet video`: {field}: {complaint}.") from None
    return record
