"""`uepnet compare`: training runs side by side."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from uepnet.training.courses import Course
    from uepnet.training.evaluate import Result

EPILOG = """examples:
  uepnet compare runs/first runs/second
  uepnet compare runs/first runs/second --plot curves.png
  uepnet compare runs/mine --plot curve.png
  uepnet compare runs/first runs/second --dataset csv --root my-camera --split test

Without --dataset the runs' settings, losses and validation errors are read, and nothing is counted. With it every
run counts the same pictures, and the error of each run is compared with that of the first. The bounds of a difference
hold in 90 % of such comparisons. A run that has `model/` in it counts with that model directory."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.options import add_runtime
    from uepnet.commands.shared.sources import DATASETS, overwrite_option, split_options

    parser.description = "Compare training runs: settings that differ, learning curves, errors on the same pictures."
    parser.epilog = EPILOG
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="folders of two or more runs; a single one needs --plot or --dataset",
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the learning curves")
    parser.add_argument(
        "--dataset", metavar="NAME", help=f"count pictures with every run: one of {', '.join(DATASETS)}"
    )
    parser.add_argument("--root", metavar="DIR", help="folder of the data set")
    split_options(parser, split="val")
    add_runtime(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    overwrite_option(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    import json

    from uepnet.model.errors import DataError
    from uepnet.training.courses import LOG, course, differences, plot_curves

    _check(args)
    courses = [course(folder) for folder in args.runs]
    counted = _count(args) if args.dataset else []
    answer = {
        "runs": [_json(one, counted[index] if counted else None) for index, one in enumerate(courses)],
        "settings": differences(courses),
        "differences": _gains(courses, counted),
    }
    if args.plot is not None:
        if not any(one.loss for one in courses):
            raise DataError(f"{args.runs[0]} has no log of training to draw: it has no {LOG} with a loss in it.")
        plot_curves(courses, args.plot)
    if args.json:
        print(json.dumps(answer))
    else:
        _show(answer)
    return 0


def _check(args: argparse.Namespace) -> None:
    from uepnet.commands.shared.sources import PICTURES, pairs
    from uepnet.model.errors import InputError
    from uepnet.model.outputs import Output, check_outputs

    if bool(args.dataset) != bool(args.root):
        raise InputError("--dataset and --root belong together: give both, or neither.")
    if len(args.runs) == 1 and args.plot is None and not args.dataset:
        raise InputError(
            "A single run cannot be compared: give a second one, or draw the curve of this one with --plot."
        )
    if len({folder.resolve() for folder in args.runs}) < len(args.runs):
        raise InputError("The same run is given twice.")
    roots = [Path(root) for _, root in pairs(args.dataset, args.root)] if args.dataset else []
    if args.plot is not None:
        check_outputs([Output("--plot", args.plot, PICTURES)], [*roots, *args.runs], args.overwrite)


def _count(args: argparse.Namespace) -> "list[list[Result]]":
    """What every run counts in the same pictures."""
    from rich.console import Console

    from uepnet.commands.shared.models import open_model
    from uepnet.commands.shared.progress import Progress
    from uepnet.commands.shared.sources import samples_of
    from uepnet.training.evaluate import evaluate

    samples = samples_of(args)
    found = []
    with Progress(Console(stderr=True), args.quiet) as progress:
        progress.start(len(samples) * len(args.runs))
        for folder in args.runs:
            artifact, run_tiles, _ = open_model(folder, args.device, args.precision, args.threads, args.engine)
            found.append(evaluate(samples, artifact, run_tiles, lambda _: progress.advance()))
    return found


def _json(course: "Course", results: "Sequence[Result] | None") -> dict[str, Any]:
    from uepnet.training.evaluate import summary

    answer: dict[str, Any] = {
        "run": course.name,
        "steps": course.config.steps,
        "done": course.done,
        "loss": course.last_loss,
        "metrics": course.metrics,
    }
    return answer if results is None else answer | {"counted": summary(results)}


def _gains(courses: "Sequence[Course]", counted: "Sequence[Sequence[Result]]") -> list[dict[str, Any]]:
    """Each run against the first."""
    from uepnet.training.courses import gain, verdict

    rows = []
    for course, results in list(zip(courses, counted, strict=False))[1:]:
        gained = gain(counted[0], results)
        low, high = gained.bounds
        text = verdict(courses[0].name, course.name, gained)
        rows.append({"run": course.name, "mae": gained.value, "low": low, "high": high, "level": 0.9, "verdict": text})
    return rows


def _show(answer: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from uepnet.model.file_names import printable

    runs = answer["runs"]
    table = Table("")
    for one in runs:
        table.add_column(Text(printable(one["run"])))
    table.add_row("steps", *(f"{one['done']} of {one['steps']}" for one in runs))
    table.add_row("loss at the end", *(_text(one["loss"]) for one in runs))
    for name in dict.fromkeys(name for one in runs for name in one["metrics"] if name != "step"):
        table.add_row(name.replace("_", " "), *(_text(one["metrics"].get(name)) for one in runs))
    for name in ("images", "mae", "rmse", "bias", "coverage") if "counted" in runs[0] else ():
        table.add_row(f"counted: {name}", *(_text(one["counted"][name]) for one in runs))
    for name, values in answer["settings"].items():
        table.add_row(f"--{name.replace('_', '-')}", *map(_text, values))
    console = Console()
    (console if console.is_terminal else Console(width=10_000)).print(table)
    for row in answer["differences"]:
        console.print(row["verdict"], highlight=False, soft_wrap=True)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
