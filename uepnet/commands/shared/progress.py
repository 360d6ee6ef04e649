"""A progress bar that is shown on a terminal only: not in a pipe or a log, and not with --quiet."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    def __init__(self, console: Console, quiet: bool) -> None:
        self.shown = console.is_terminal and not quiet
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._bar = RichProgress(*columns, console=console, transient=True, disable=not self.shown)
        self._task: TaskID | None = None

    def start(self, total: int | None, done: int = 0) -> None:
        """Show the bar, with `done` items counted before; without a total it only shows that work goes on."""
        self._task = self._bar.add_task("", total=total, completed=done)

    def advance(self, text: str = "", by: int = 1) -> None:
        if self._task is not None:
            self._bar.update(self._task, advance=by, description=escape(text))

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
