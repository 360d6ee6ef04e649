"""How counts of images are shown: a table for people, JSON and CSV for programs; each written as it goes."""

import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uepnet.model.errors import OutputError

# {path, count, range, zones, saturated, warnings, model} or {path, error}
Entry = dict[str, Any]
ROWS_PER_PAGE = 40


class Report(Protocol):
    def add(self, entry: Entry) -> None: ...

    def close(self) -> None: ...


class TableReport:
    """Rows in pages of equal layout, so that a long run shows its first rows early and keeps none of them."""

    def __init__(self, console: Console, zone_names: Sequence[str]) -> None:
        self._console, self._zone_names = console, zone_names
        self._first = True
        self._rows: list[list[Text]] = []
        self._warnings: list[str] = []
        self._total, self._counted, self._failed = 0.0, 0, 0

    def add(self, entry: Entry) -> None:
        if "error" in entry:
            self._failed += 1
            self._rows.append([Text(entry["path"]), Text("-"), Text("failed", style="red")])
        else:
            self._counted += 1
            self._total += entry["count"]
            self._rows.append(self._row(entry))
            self._warnings += [f"{entry['path']}: {text}" for text in entry["warnings"]]
        if len(self._rows) >= ROWS_PER_PAGE:
            self._flush()

    def close(self) -> None:
        self._flush()
        if self._counted + self._failed > 1:
            failed = f", {self._failed} failed" if self._failed else ""
            self._console.print(f"{self._counted} counted{failed}: {people(self._total)} people in all")

    def _row(self, entry: Entry) -> list[Text]:
        bounds = entry["range"]
        shown = f"{people(bounds['low'])} - {people(bounds['high'])} ({bounds['level']:.0%})" if bounds else ""
        zones = {zone["name"]: people(zone["count"]) for zone in entry["zones"]}
        zone_cells = [Text(zones.get(name, "")) for name in self._zone_names]
        return [Text(entry["path"]), Text(people(entry["count"]), style="bold"), Text(shown), *zone_cells]

    def _flush(self) -> None:
        if not self._rows:
            return
        table = Table(box=None, show_header=self._first, pad_edge=False, width=self._console.width)
        table.add_column("image", ratio=5, overflow="fold")
        table.add_column("people", ratio=1, justify="right", min_width=7)
        table.add_column("range", ratio=3, overflow="fold")
        for name in self._zone_names:
            table.add_column(name, ratio=1, justify="right", overflow="fold", min_width=6)
        for row in self._rows:
            table.add_row(*row)
        self._console.print(table)
        for text in self._warnings:
            self._console.print(Text(text, style="yellow"))
        self._first = False
        self._rows, self._warnings = [], []


class JsonReport:
    """One JSON list, an entry a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._first = True
        file.write("[")

    def add(self, entry: Entry) -> None:
        self._file.write(("\n" if self._first else ",\n") + json.dumps(entry, ensure_ascii=False, allow_nan=False))
        self._file.flush()
        self._first = False

    def close(self) -> None:
        self._file.write("\n]\n")


class CsvReport:
    """A row an image in a file; `-` is standard output."""

    def __init__(self, path: Path, zone_names: Sequence[str]) -> None:
        self._path, self._zone_names = path, zone_names
        try:
            self._file = sys.stdout if path == Path("-") else path.open("w", newline="", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}.") from None
        zones = [f"zone {name}" for name in zone_names]
        self._write(["path", "count", "low", "high", "saturated", "model", "error", *zones])

    def add(self, entry: Entry) -> None:
        bounds, model = entry.get("range") or {}, entry.get("model")
        zones = {zone["name"]: zone["count"] for zone in entry.get("zones", ())}
        row = [entry["path"], entry.get("count"), bounds.get("low"), bounds.get("high"), entry.get("saturated")]
        row += ["{name} {version}".format(**model) if model else None, entry.get("error")]
        self._write(row + [zones.get(name) for name in self._zone_names])

    def close(self) -> None:
        if self._file is not sys.stdout:
            self._file.close()

    def _write(self, row: Sequence[object]) -> None:
        text = io.StringIO()
        csv.writer(text).writerow(row)
        try:
            self._file.write(text.getvalue())
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"{self._path} cannot be written further: {error.strerror}.") from None


def people(count: float) -> str:
    return f"{count:,.0f}" if count >= 10 else f"{count:.1f}"
