"""Counts of images as a CSV table: a row per image, written as soon as it is known, so that a run can be resumed."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

from uepnet.commands.shared.results import Entry
from uepnet.model.errors import InputError, OutputError
from uepnet.model.file_names import printable
from uepnet.model.outputs import open_log, whole_file, write_all

COLUMNS = ("path", "count", "low", "high", "saturated", "model", "error")
WARNINGS = "warnings"  # the last column, behind the zones: tables of 0.1 end without it


class CsvReport:
    """A row per image; `-` is standard output. With `resume`, `counted` has the images of the rows that were there."""

    def __init__(self, path: Path, zone_names: Sequence[str], resume: bool = False, model: str = "") -> None:
        self._path, self._zone_names = path, zone_names
        self._columns = [*COLUMNS, *(f"zone {name}" for name in zone_names), WARNINGS]
        self.counted: set[str] = set()
        if resume and path.exists():
            self._keep_counted(model)
            self._file = _append(path)
        else:
            self._file = open_log(path)
            self._write(self._columns)

    def add(self, entry: Entry) -> None:
        bounds, model = entry.get("range") or {}, entry.get("model")
        zones = {zone["name"]: zone["count"] for zone in entry.get("zones", ())}
        row = [entry["path"], entry.get("count"), bounds.get("low"), bounds.get("high"), entry.get("saturated")]
        row += ["{name} {version}".format(**model) if model else None, entry.get("error")]
        row += [zones.get(name) for name in self._zone_names]
        self._write([*row, " ".join(entry.get("warnings", ())) or None])

    def close(self) -> None:
        self._file.close()

    def _write(self, row: Sequence[object]) -> None:
        try:
            write_all(self._file, _line(row))
        except BrokenPipeError:
            raise
        except OSError as error:
            name = "Standard output" if str(self._path) == "-" else self._path
            raise OutputError(f"{name} cannot be written further: {error.strerror}.") from None

    def _keep_counted(self, model: str) -> None:
        """Keep the rows of counted images. Failed ones are tried again; a row without its end was being written."""
        kept = []
        for row in self._rows():
            if row[COLUMNS.index("error")]:
                continue
            written = row[COLUMNS.index("model")]
            if written != model:
                raise InputError(f"{self._path} was counted with the model {written}, this is {model}.")
            self.counted.add(row[0])
            kept.append(row)
        with whole_file(self._path) as file:
            file.writelines(_line(row) for row in (self._columns, *kept))

    def _rows(self) -> list[list[str]]:
        """The whole rows of the table that is there, after its header."""
        try:
            text = self._path.read_bytes().decode("utf-8")
        except OSError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            text = "\n"
        whole = text[: text.rfind("\n") + 1]
        rows = list(csv.reader(io.StringIO(whole, newline="")))
        header = _line(self._columns).decode()
        if not whole and header.startswith(text):
            return []  # killed before the first row
        if not rows or rows[0] not in (self._columns, self._columns[:-1]):
            raise InputError(f"{self._path} cannot be resumed: its columns are not those of this command and zones.")
        if any(len(row) != len(rows[0]) for row in rows):
            raise InputError(f"{self._path} cannot be resumed: some of its rows are not complete.")
        missing = len(self._columns) - len(rows[0])
        return [row + [""] * missing for row in rows[1:]]


def _append(path: Path) -> BinaryIO:
    try:
        return cast(BinaryIO, path.open("ab", buffering=0))
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from None


def _line(row: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow([printable(value) if isinstance(value, str) else value for value in row])
    return text.getvalue().encode()
