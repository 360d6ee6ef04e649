"""A progress bar that keeps quiet where nobody watches: in a pipe, a log or with --quiet."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    def __init__(self, console: Console, quiet: bool) -> None:
        self.shown = console.is_terminal and not quiet
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._bar = RichProgress(*columns, console=console, transient=True, disable=not self.shown)
        self._task: TaskID | None = None

    def start(self, total: int | None) -> None:
        """Show the bar; without a total it only says that work goes on."""
        self._task = self._bar.add_task("", total=total)

    def advance(self, text: str = "") -> None:
        if self._task is not None:
            self._bar.update(self._task, advance=1, description=text)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
