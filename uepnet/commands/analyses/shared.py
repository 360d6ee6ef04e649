"""What several analyses need: the type of their answer, a training run, the samples of each data set, progress."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uepnet.training.data.dataset import Sample

Table = list[list[str | float]]  # the first row holds the titles


class AnalysisResult(NamedTuple):
    json: Mapping[str, object]  # printed with --json
    table: Table  # printed without it
    sentence: str = ""  # printed below the table


def training_run(run: Path | None, refusal: str) -> Path:
    """The folder given as --model, which must be a training run: a model directory has no weights for torch."""
    from uepnet.model.errors import InputError

    if run is None or not (run / "weights.safetensors").is_file():
        raise InputError(refusal)
    return run


def samples_by_data_set(args: argparse.Namespace) -> "list[list[Sample]]":
    """The samples of the split, one list for each data set, in the order of --dataset."""
    from uepnet.commands.shared.sources import pairs
    from uepnet.training.data import dataset

    return [dataset.load(name, Path(root), args.split, args.fold) for name, root in pairs(args.dataset, args.root)]


def data_set_names(args: argparse.Namespace) -> str:
    """The data sets as a column title: `a / b`."""
    return " / ".join(args.dataset.split(","))


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on stderr; the function moves it on by one."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
