"""`uepnet train`: data in, a run folder with weights and artifact out."""

import argparse
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from uepnet.training.config import Config
    from uepnet.training.train import Progress

    Watch = Callable[[Progress], None]

EPILOG = """examples:
  uepnet train --dataset shanghaitech-b --root ShanghaiTech --preset paper --out runs/paper-b
  uepnet train --dataset csv --root my-camera --init runs/earlier --steps 1000 --out runs/mine
  uepnet train --resume runs/mine
  torchrun --nproc-per-node 4 -m uepnet train --device cuda --dataset ucf-qnrf --root QNRF --out runs/qnrf

Presets: `fast` trains the light network (AdamW, cosine, batches of square crops); `paper` trains the paper's
VGG-16 network as published (SGD, batch 1, learning rate divided by 10 when the loss stagnates).
Ctrl-C saves a checkpoint and says how to go on. Then: `uepnet export runs/mine --out models/mine`."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Train a network on annotated images; resumes exactly where it was stopped or killed."
    parser.epilog = EPILOG
    where = parser.add_argument_group("data and place")
    where.add_argument("--dataset", help="data set, or several separated by commas (see `uepnet data check --help`)")
    where.add_argument("--root", help="the folder that holds the release; one for all, or one a data set, by commas")
    where.add_argument("--fold", help="1 to 5 for ucf-cc-50, or all: trains and tests every fold")
    where.add_argument("--out", type=Path, help="the run's folder (new)")
    where.add_argument("--resume", type=Path, metavar="RUN", help="go on with this run")
    where.add_argument("--empty", metavar="DIR", help="pictures with nobody in them, mixed in (half is held back)")
    where.add_argument("--empty-share", type=float, help="share of tiles that hold nobody (0.1 with --empty)")
    where.add_argument(
        "--repeat", type=int, nargs="+", metavar="N", help="show each data set's images so often a round (once)"
    )
    where.add_argument("--preset", choices=["fast", "paper"], default="fast")
    net = parser.add_argument_group("network")
    net.add_argument("--encoder", choices=["efficientnet-lite0", "vgg16"])
    net.add_argument("--width", type=int, help="channels of the decoder")
    net.add_argument(
        "--init",
        metavar="FILE",
        help="start from ImageNet weights of the encoder, or from a run or weights of ours "
        "(default: the bundled model; for vgg16 torchvision's ImageNet weights)",
    )
    net.add_argument("--freeze", type=int, metavar="STAGES", help="keep the first stages of the encoder as they are")
    net.add_argument(
        "--fixed-norms",
        action="store_true",
        default=None,
        help="batch norms keep the statistics they start with: for fine-tuning, or batches of few tiles",
    )
    parts = parser.add_argument_group("intervals and targets")
    parts.add_argument("--intervals", type=int, help="classes of the first head, background included (25)")
    parts.add_argument("--partition", choices=["uep", "uniform-length", "uniform-number", "two-linear", "log"])
    parts.add_argument("--proxies", choices=["mean", "midpoint", "median"])
    parts.add_argument("--heads", choices=["interleaved", "parallel", "single"])
    parts.add_argument("--knee", type=float, help="where two-linear turns coarse, in people per cell (0.5)")
    parts.add_argument("--cell", type=int, choices=[8, 16, 32], help="side of a cell in pixels (8)")
    parts.add_argument("--target", choices=["classes", "regression"], help="regression is the paper's MSE baseline")
    parts.add_argument("--kernel", help="fixed:SIGMA, adaptive, or adaptive:SMALLEST:LARGEST; default: the data set's")
    loop = parser.add_argument_group("optimisation")
    loop.add_argument("--steps", type=int)
    loop.add_argument("--batch", type=int)
    loop.add_argument("--crop", type=int, help="side of a training tile; 0: a quarter of the image's area")
    loop.add_argument(
        "--scale", type=float, nargs=2, metavar=("LOW", "HIGH"), help="random scaling (0.8 2.2; paper: 0.3 1.3)"
    )
    loop.add_argument(
        "--input-scale", type=float, metavar="S", help="count images at S times their size (1.2; paper: 1)"
    )
    loop.add_argument("--no-scale", action="store_true", help="no random scaling")
    loop.add_argument("--no-mirror", dest="mirror", action="store_false", default=None)
    loop.add_argument("--jitter", type=float, help="how far brightness and contrast wander (0.3)")
    loop.add_argument("--optimiser", choices=["adamw", "sgd"])
    loop.add_argument("--lr", type=float)
    loop.add_argument(
        "--encoder-rate", type=float, metavar="X", help="the encoder learns at X times the rate, such as 0.1 (1)"
    )
    loop.add_argument("--weight-decay", type=float)
    loop.add_argument("--schedule", choices=["cosine", "plateau"])
    loop.add_argument("--warm-up", type=int, metavar="STEPS", help="a tenth of the steps, at most 200; paper: none")
    loop.add_argument("--count-loss", type=float, help="weight of the error of expected counts; 0: the paper's loss")
    loop.add_argument("--clip", type=float, help="largest norm of the gradient")
    loop.add_argument(
        "--average", type=float, metavar="DECAY", help="keep a running mean of the weights, such as 0.998 (none)"
    )
    loop.add_argument("--keep", choices=["last", "best"], help="which weights to keep")
    loop.add_argument("--seed", type=int)
    box = parser.add_argument_group("machine")
    box.add_argument("--device", help="cpu, cuda or cuda:N")
    box.add_argument("--workers", type=int, help="processes that load data")
    box.add_argument("--threads", type=int, help="threads of the network on the CPU")
    box.add_argument(
        "--bfloat16",
        action="store_true",
        default=None,
        help="most of the arithmetic in bfloat16 on a CPU that has it: 1.4 times as fast (always on CUDA)",
    )
    box.add_argument(
        "--compile", action="store_true", default=None, help="compile the network: faster steps, slower start"
    )
    box.add_argument("--validate-every", type=int, metavar="STEPS")
    box.add_argument("--validate-images", type=int, metavar="N", help="validate on about N images only")
    box.add_argument("--checkpoint-seconds", type=float)
    box.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from uepnet.model.errors import DataError, InputError
    from uepnet.training.config import Config

    if args.resume is not None:
        folder: Path = args.resume
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder} is no training run: it has no config.json.")
        return _train(folder, Config.read(folder), True, args.quiet)
    if not (args.dataset and args.root and args.out):
        raise DataError("Training needs --dataset, --root and --out, or --resume RUN.")
    config = _config(args)
    if args.fold != "all":
        return _train(args.out, config, False, args.quiet)
    return _all_folds(args.out, [replace(config, fold=fold) for fold in range(1, _folds(config) + 1)], args.quiet)


def _train(folder: Path, config: "Config", resume: bool, quiet: bool) -> int:
    """Train one run; Ctrl-C and SIGTERM end it after the step under way, saved."""
    import signal

    from uepnet.training.distributed import keep_memory
    from uepnet.training.train import train

    keep_memory()
    first = os.environ.get("RANK", "0") == "0"  # of several processes, one speaks
    asked: list[int] = []
    before = {number: signal.signal(number, lambda *_: asked.append(1)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _bar(config.steps, quiet or not first) as watch:
            train(folder, config, resume=resume, watch=watch, stop=lambda: bool(asked))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    says = f"Done: {folder}. Next: uepnet export {folder} --out models/{folder.name}"
    if asked:
        says = f"Stopped and saved. Go on with: uepnet train --resume {folder}"
    if first:
        print(says)
    return 130 if asked else 0


def _folds(config: "Config") -> int:
    from uepnet.model.errors import DataError
    from uepnet.training.dataset import FOLDS

    name = config.data[0][0]
    if len(config.data) != 1 or name not in FOLDS:
        raise DataError(f"--fold all is for data sets that are cross-validated: {', '.join(FOLDS)}.")
    return FOLDS[name]


def _all_folds(folder: Path, configs: "list[Config]", quiet: bool) -> int:
    """Cross-validation: every fold gets its own intervals and weights; a fold that is done is not trained again."""
    import json

    from uepnet.commands.models import open_model
    from uepnet.training.evaluate import evaluate, summary
    from uepnet.training.prepare import samples_of

    rows = []
    for config in configs:
        run = folder / f"fold-{config.fold}"
        code = _train(run, config, (run / "config.json").is_file(), quiet)
        if code:
            return code
        artifact, run_tiles, _ = open_model(run)
        rows.append(summary(evaluate(samples_of(config, "test"), artifact, run_tiles)))
        print(f"fold {config.fold}: MAE {rows[-1]['mae']:.2f}, RMSE {rows[-1]['rmse']:.2f}")
    means = {name: sum(float(row[name] or 0) for row in rows) / len(rows) for name in ("mae", "rmse")}
    (folder / "folds.json").write_text(json.dumps({"folds": rows, "mean": means}, indent=1) + "\n")
    print(f"mean of {len(rows)} folds: MAE {means['mae']:.2f}, RMSE {means['rmse']:.2f}")
    return 0


def _config(args: argparse.Namespace) -> "Config":
    from dataclasses import fields

    from uepnet.commands.sources import pairs
    from uepnet.training.config import PRESETS, Config, threads_available

    values = dict(PRESETS[args.preset])
    known = {field.name for field in fields(Config)}
    values |= {key: value for key, value in vars(args).items() if key in known and value is not None}
    if args.empty and args.empty_share is None:
        values["empty_share"] = 0.1
    if args.no_scale:
        values["scale"] = (values.get("input_scale", 1.0),) * 2
    for name in ("scale", "repeat"):
        if name in values:
            values[name] = tuple(values[name])
    if args.fold and args.fold != "all":
        values["fold"] = _whole(args.fold)
    else:
        values.pop("fold", None)
    values.setdefault("threads", threads_available())
    # A short run would end before its learning rate has warmed up.
    values.setdefault("warm_up", min(Config.warm_up, max(1, values.get("steps", Config.steps) // 10)))
    values["data"] = pairs(args.dataset, args.root)
    return Config(**values)


def _whole(text: str) -> int:
    from uepnet.model.errors import DataError

    if not text.isdigit():
        raise DataError(f"--fold is a number or all, not {text!r}.")
    return int(text)


def _bar(steps: int, quiet: bool) -> "AbstractContextManager[Watch]":
    """A live bar on a terminal; a line a minute into a file."""
    return _live(steps) if sys.stdout.isatty() and not quiet else _lines(quiet)


@contextmanager
def _lines(quiet: bool) -> "Iterator[Watch]":
    shown = 0.0

    def watch(progress: "Progress") -> None:
        nonlocal shown
        if quiet or (progress.kind == "train" and time.monotonic() - shown < 60):
            return
        shown = time.monotonic()
        values = "  ".join(f"{name} {value:.4g}" for name, value in progress.values.items())
        print(f"step {progress.step}/{progress.steps}  {values}", flush=True)

    yield watch


@contextmanager
def _live(steps: int) -> "Iterator[Watch]":
    from rich import progress as rich

    columns = (rich.TextColumn("training"), rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, rich.TextColumn("{task.description}")) as bar:
        task = bar.add_task("", total=steps)
        state: dict[str, float] = {}

        def watch(progress: "Progress") -> None:
            state.update({name: value for name, value in progress.values.items() if name != "lr"})
            text = "  ".join(f"{name} {value:.3g}" for name, value in state.items())
            bar.update(task, completed=progress.step, description=text)

        yield watch
