"""`uepnet finetune`: train the bundled model further on pictures of one's own camera."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uepnet.model.artifact import Precision
    from uepnet.training.data.dataset import Sample
    from uepnet.training.pace import WorkLeft
    from uepnet.training.verdict import Verdict

EPILOG = """examples:
  uepnet finetune --dataset cvat --root my-camera --out runs/gate
  uepnet finetune --dataset csv --root my-camera --out runs/gate --minutes 20
  uepnet finetune --dataset csv --root my-camera --init runs/gate --out runs/gate-2
  uepnet serve --model runs/gate

RUN/model is a calibrated model directory, ready to serve: the new model, or the old one with a new range if the new
one is not better. RUN/report.html shows why. Only the training pictures are used: files called val and test
are left for `uepnet evaluate`. The order of their names is taken as the order in which the pictures were made.
At least 10 pictures are needed; 50 from different hours are a good start."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.sources import DATASETS

    parser.description = "Fine-tune a model on labelled pictures of your own camera; it is kept only if it is better."
    parser.epilog = EPILOG
    parser.add_argument(
        "--dataset",
        required=True,
        metavar="NAME",
        help=f"format of the labels: {', '.join(DATASETS)}; or several, comma-separated",
    )
    parser.add_argument(
        "--root",
        required=True,
        metavar="DIR",
        help="folder with the pictures and labels; comma-separated: one for all data sets, or one for each",
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="RUN", help="folder of the run; it must be new or empty"
    )
    parser.add_argument("--init", type=Path, metavar="RUN", help="run to start from (default: the bundled model)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=8.0,
        metavar="MINUTES",
        help="approximate time of the whole command, from 1 to 600 (default: 8)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=0,
        metavar="N",
        help="training steps of each of the 4 copies (default: depends on the number of pictures and the time)",
    )
    parser.add_argument(
        "--precision", default="fp32", metavar="LIST", help="comma-separated: fp32, fp16, int8 (default: fp32)"
    )
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="CPU threads; 0 for one per core (default: 0)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all random choices (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    import json

    import torch

    from uepnet.commands.shared.interrupts import on_stop
    from uepnet.commands.shared.sources import pairs
    from uepnet.model.device import available_cores
    from uepnet.model.file_names import natural
    from uepnet.training.data.dataset import load
    from uepnet.training.data.dataset_check import refuse_broken
    from uepnet.training.distributed import keep_memory
    from uepnet.training.finetune import finetune
    from uepnet.training.finetune_recipe import recipe
    from uepnet.training.finetune_run import new_run, start_from, write_run
    from uepnet.training.pace import Pace
    from uepnet.training.report_html import write_report

    precisions = _precisions(args)
    with on_stop(_interrupt), new_run(args.out) as folder:
        start = start_from(args.init)
        data = tuple((name, str(Path(root).resolve())) for name, root in pairs(args.dataset, args.root))
        samples = [
            sample
            for name, root in data
            for sample in sorted(load(name, Path(root), "usable"), key=lambda sample: natural(sample.name))
        ]
        refuse_broken(samples)
        if not args.quiet:
            _show_notes(samples)
        keep_memory()
        threads = args.threads or available_cores()
        torch.set_num_threads(threads)
        config = recipe(
            start.artifact, data, device=args.device, threads=threads, seed=args.seed, init=str(args.init or "")
        )
        with _progress(args.quiet) as watch:
            pace = Pace(args.minutes, watch)
            verdict = finetune(start, samples, config, pace, args.steps)
            pace.say("writing the model")
            artifact = write_run(folder, args.out.resolve().name, start, verdict, samples, precisions, pace.say)
            write_report(folder / "report.html", verdict, artifact, samples)
    answer = verdict.as_json() | {"minutes": round(pace.elapsed / 60, 2), "model": str(args.out / "model")}
    if args.json:
        print(json.dumps(answer))
    else:
        _show(verdict, args.out, pace.elapsed)
    return 0


def _precisions(args: argparse.Namespace) -> "list[Precision]":
    from typing import get_args

    from uepnet.model.artifact import Precision
    from uepnet.model.errors import InputError

    if not 1 <= args.minutes <= 600:
        raise InputError(f"--minutes is from 1 to 600, not {args.minutes:g}.")
    if args.steps < 0 or args.threads < 0 or args.seed < 0:
        raise InputError("--steps, --threads and --seed must not be negative.")
    known: tuple[Precision, ...] = get_args(Precision)
    names = dict.fromkeys(args.precision.split(","))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"--precision takes {', '.join(known)}, not {unknown[0]!r}.")
    return [precision for precision in known if precision in names]


def _show_notes(samples: "list[Sample]") -> None:
    import sys

    noted = [(sample.name, note) for sample in samples for note in sample.notes]
    for name, note in noted[:5]:
        print(f"note: {name} {note}", file=sys.stderr)
    if len(noted) > 5:
        print(f"note: and {len(noted) - 5} more; `uepnet data check` lists them.", file=sys.stderr)


def _interrupt(*_: object) -> None:
    """SIGTERM and a closed terminal end the command like Ctrl-C: nothing is left behind."""
    raise KeyboardInterrupt


@contextmanager
def _progress(quiet: bool) -> "Iterator[_Watch]":
    """On a terminal a bar with the time left, elsewhere a line every 20 seconds; on standard error."""
    import sys

    watch = _Watch(quiet, sys.stderr.isatty())
    try:
        yield watch
    finally:
        watch.close()


class _Watch:
    def __init__(self, quiet: bool, terminal: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._quiet, self._shown = quiet, 0.0
        self._bar = Progress(
            BarColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True,
            disable=quiet or not terminal,
        )  # fmt: skip
        self._terminal = terminal
        self._task = self._bar.add_task("", total=1.0)
        self._bar.start()

    def __call__(self, moment: "WorkLeft") -> None:
        import sys
        import time

        text = f"{moment.text}, {_duration(moment.seconds_left)} left"
        self._bar.update(self._task, completed=moment.done, description=text)
        if self._quiet or self._terminal or time.monotonic() - self._shown < 20:
            return
        self._shown = time.monotonic()
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        self._bar.stop()


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _show(verdict: "Verdict", out: Path, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    answer = verdict.as_json()
    before, after = answer["before"], answer["after"]
    assert isinstance(before, dict) and isinstance(after, dict)
    table = Table(title=f"cross-validated on {before['images']} pictures")
    for name in ("", "mean absolute error (90 %)", "bias", "people in drawn empty scenes"):
        table.add_column(name)
    for name, row, empty in (("before", before, verdict.empty[0]), ("after", after, verdict.empty[1])):
        bounds = f"{row['mae']:.2f} ({row['mae_low']:.2f} to {row['mae_high']:.2f})"
        table.add_row(name, bounds, f"{row['bias']:+.2f}", f"{empty:.2f}")
    console = Console()
    console.print(table)
    console.print(verdict.in_words, highlight=False)
    if verdict.kept == "new":
        console.print(f"The new model is kept: {verdict.reason}.")
    else:
        fitted = "" if verdict.known else ", with a range for this camera"
        console.print(f"The old model is kept{fitted}. The new one is not better: {verdict.reason}.")
    held, share = len(verdict.before), verdict.coverage
    console.print(f"Its range held {round(share * held)} of {held} held-back pictures ({share:.0%}).", highlight=False)
    if verdict.known:
        console.print(f"[yellow]Note:[/yellow] {verdict.caveat}", highlight=False)
    console.print(f"Time: {_duration(seconds)}.", highlight=False)
    console.print(f"See {out}/report.html. Next: uepnet serve --model {out}", soft_wrap=True)
