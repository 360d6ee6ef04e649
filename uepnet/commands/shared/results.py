"""How counts of images are shown: a table for people and JSON for programs, each written as it goes."""

import json
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uepnet.model.file_names import printable

# {path, count, range, zones, saturated, scales, warnings, model} or {path, error}
Entry = dict[str, Any]
ROWS_PER_PAGE = 40
UNLIMITED = 100_000  # columns of a table in a pipe: no name is broken


class CountReport(Protocol):
    def add(self, entry: Entry) -> None: ...

    def close(self) -> None: ...


class TableReport:
    """Rows in pages, so that a long run shows its first rows early and keeps none of them.

    On a terminal long names are folded; in a pipe every image has one line.
    """

    def __init__(self, console: Console, zone_names: Sequence[str]) -> None:
        self._console = console if console.is_terminal else Console(file=console.file, width=UNLIMITED)
        self._zone_names = zone_names
        self._first = True
        self._rows: list[list[Text]] = []
        self._warnings: list[str] = []
        self._total, self._counted, self._failed = 0.0, 0, 0

    def add(self, entry: Entry) -> None:
        path = printable(entry["path"])
        if "error" in entry:
            self._failed += 1
            self._rows.append([Text(path), Text("-"), Text("failed", style="red")])
        else:
            self._counted += 1
            self._total += entry["count"]
            self._rows.append(self._row(path, entry))
            self._warnings += [f"{path}: {text}" for text in entry["warnings"]]
        if len(self._rows) >= ROWS_PER_PAGE:
            self._flush()

    def close(self) -> None:
        self._flush()
        if self._counted + self._failed > 1:
            failed = f", {self._failed} failed" if self._failed else ""
            self._console.print(f"{self._counted} counted{failed}: {people(self._total)} people in all")

    def _row(self, path: str, entry: Entry) -> list[Text]:
        bounds = entry["range"]
        shown = f"{people(bounds['low'])} - {people(bounds['high'])} ({bounds['level']:.0%})" if bounds else ""
        zones = {zone["name"]: people(zone["count"]) for zone in entry["zones"]}
        zone_cells = [Text(zones.get(name, "")) for name in self._zone_names]
        return [Text(path), Text(people(entry["count"]), style="bold"), Text(shown), *zone_cells]

    def _flush(self) -> None:
        if not self._rows:
            return
        self._console.print(self._folded() if self._console.is_terminal else self._unfolded())
        for text in self._warnings:
            self._console.print(Text(text, style="yellow"), soft_wrap=True)
        self._first = False
        self._rows, self._warnings = [], []

    def _folded(self) -> Table:
        """As wide as the terminal, the columns of every page alike."""
        table = Table(box=None, show_header=self._first, pad_edge=False, width=self._console.width)
        table.add_column("image", ratio=5, overflow="fold")
        table.add_column("people", ratio=1, justify="right", min_width=7)
        table.add_column("range", ratio=3, overflow="fold")
        for name in self._zone_names:
            table.add_column(Text(printable(name)), ratio=1, justify="right", overflow="fold", min_width=6)
        for row in self._rows:
            table.add_row(*row)
        return table

    def _unfolded(self) -> Table:
        table = Table(box=None, show_header=self._first, pad_edge=False)
        table.add_column("image", no_wrap=True)
        table.add_column("people", no_wrap=True, justify="right", min_width=7)
        table.add_column("range", no_wrap=True)
        for name in self._zone_names:
            table.add_column(Text(printable(name)), no_wrap=True, justify="right", min_width=6)
        for row in self._rows:
            table.add_row(*row)
        return table


class JsonReport:
    """One JSON list, one line per entry."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._first = True
        file.write("[")

    def add(self, entry: Entry) -> None:
        text = json.dumps({**entry, "path": printable(entry["path"])}, ensure_ascii=False, allow_nan=False)
        self._file.write(("\n" if self._first else ",\n") + text)
        self._file.flush()
        self._first = False

    def close(self) -> None:
        self._file.write("\n]\n")


def people(count: float) -> str:
    return f"{count:,.0f}" if count >= 10 else f"{count:.1f}"
