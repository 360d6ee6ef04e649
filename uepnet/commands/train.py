"""`uepnet train`: data in, a run folder with weights and artifact out."""

import argparse
import os
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from uepnet.training.config import Config
    from uepnet.training.metrics_log import StepMetrics

    Watch = Callable[[StepMetrics], None]

EPILOG = """examples:
  uepnet train --dataset shanghaitech-b --root ShanghaiTech --preset paper --out runs/paper-b
  uepnet train --dataset csv --root my-camera --init runs/earlier --steps 1000 --out runs/mine
  uepnet train --config runs/mine/config.json --seed 1 --out runs/mine-again
  uepnet train --resume runs/mine
  torchrun --nproc-per-node 4 -m uepnet train --device cuda --dataset ucf-qnrf --root QNRF --out runs/qnrf

Presets: `fast` trains the light network (AdamW, cosine, batches of square crops); `paper` trains the paper's
VGG-16 network as published (docs/paper.md). A flag overrides --config FILE, which overrides the preset.
Ctrl-C, SIGTERM and a closed terminal end the run after the step under way; it can be resumed, and exported as it is.
Resumed with the same --threads on the same machine, it reaches the weights of an unbroken run, bit by bit.
Then: `uepnet export runs/mine --out models/mine`."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.training_options import add_settings

    parser.description = "Train a network on annotated images. A run that was stopped or killed resumes exactly."
    parser.epilog = EPILOG
    parser.add_argument(
        "--dataset", metavar="NAME", help="data set, or several, comma-separated (see `uepnet data check --help`)"
    )
    parser.add_argument(
        "--root",
        metavar="DIR",
        help="folder that holds the release; comma-separated: one for all data sets, or one for each",
    )
    parser.add_argument("--fold", metavar="K", help="1 to 5 for ucf-cc-50; `all` trains and tests every fold")
    parser.add_argument("--out", type=Path, metavar="RUN", help="folder of the new run; it must be new or empty")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="continue this run; --root, --empty, --degraded, --steps and the settings of the group machine may "
        "be changed",
    )
    parser.add_argument(
        "--preset", choices=["fast", "paper"], help="default values of the settings below (default: fast)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a YAML file or a run's config.json")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument(
        "--no-scale", action="store_true", help="no random scale: every training tile is at --input-scale"
    )
    add_settings(parser)
    parser.add_argument(
        "--bfloat16", dest="precision", action="store_const", const="bfloat16", help="same as --precision bfloat16"
    )


def run(args: argparse.Namespace) -> int:
    from uepnet.model.errors import InputError

    if args.resume is not None:
        from uepnet.commands.shared.resuming import resumed

        config, notes = resumed(args)
        for note in notes:
            print(note, flush=True)
        return _train(args.resume, config, True, args.quiet)
    if args.out is None:
        raise InputError("Training needs --out, the folder of the new run, or --resume RUN.")
    config = _config(args)
    if args.fold != "all":
        return _train(args.out, config, False, args.quiet)
    folds = [config.changed(fold=fold) for fold in range(1, _folds(config) + 1)]
    return _all_folds(args.out, folds, args.quiet)


def _train(folder: Path, config: "Config", resume: bool, quiet: bool) -> int:
    """Train one run; Ctrl-C, SIGTERM and a closed terminal end it after the step under way, saved."""
    from uepnet.commands.shared.interrupts import interrupts
    from uepnet.training.distributed import keep_memory
    from uepnet.training.train import train

    keep_memory()
    first = os.environ.get("RANK", "0") == "0"  # of several processes, one speaks
    with interrupts() as asked, _bar(config.steps, quiet or not first) as watch:
        train(folder, config, resume=resume, watch=watch, stop=lambda: bool(asked))
    says = f"Done: {folder}. Next: uepnet export {folder} --out models/{folder.name}"
    if asked:
        says = f"Stopped and saved. Go on with: uepnet train --resume {folder}"
    if first:
        print(says)
    return 130 if asked else 0


def _folds(config: "Config") -> int:
    from uepnet.model.errors import DataError
    from uepnet.training.data.dataset import FOLDS

    name = config.data[0][0]
    if len(config.data) != 1 or name not in FOLDS:
        raise DataError(f"--fold all is for data sets that are cross-validated: {', '.join(FOLDS)}.")
    return FOLDS[name]


def _all_folds(folder: Path, configs: "list[Config]", quiet: bool) -> int:
    """Cross-validation: every fold gets its own intervals and weights; a fold that is done is not trained again."""
    import json

    from uepnet.commands.shared.models import open_model
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
    """The preset, then the file, then the flags."""
    from uepnet.commands.shared.sources import pairs
    from uepnet.commands.shared.training_options import given, read_settings
    from uepnet.model.device import available_cores
    from uepnet.model.errors import InputError
    from uepnet.training.config import PRESETS, Config

    file = read_settings(args.config) if args.config else {}
    preset, dataset, root = (getattr(args, name) or file.pop(name, None) for name in ("preset", "dataset", "root"))
    preset = preset or "fast"
    if preset not in PRESETS:
        raise InputError(f"{args.config}: preset is {' or '.join(PRESETS)}, not {preset!r}.")
    flags = given(args)
    if args.fold and args.fold != "all":
        flags["fold"] = args.fold
    chosen = file | flags
    if dataset and root:
        chosen["data"] = pairs(dataset, root)
    if not chosen.get("data"):
        raise InputError("Training needs --dataset and --root, or --resume RUN.")
    defaults = PRESETS[preset] | {"threads": available_cores()}
    if chosen.get("empty"):
        defaults["empty_share"] = 0.1
    if chosen.get("degraded"):
        defaults["degraded_share"] = 0.3
    config = Config.of(defaults | chosen, str(args.config or ""), flags)
    changes: dict[str, object] = {}
    if args.no_scale:
        changes["scale"] = (config.input_scale, config.input_scale)
    if "warm_up" not in defaults | chosen:  # a short run would end before its learning rate has warmed up
        changes["warm_up"] = min(config.warm_up, max(1, config.steps // 10))
    if "left_out" not in chosen:
        changes["left_out"] = _left_out(config)
    return config.changed(**changes | _absolute(config))


def _absolute(config: "Config") -> dict[str, object]:
    """The folders as absolute paths, so that the run can be resumed from any directory."""
    data = tuple((name, str(Path(root).resolve())) for name, root in config.data)
    paths = {name: getattr(config, name) for name in ("empty", "degraded", "init")}
    return {"data": data} | {name: str(Path(path).resolve()) for name, path in paths.items() if path}


def _left_out(config: "Config") -> tuple[str, ...]:
    """DATASET/IMAGE of the published images that are not trained on."""
    from uepnet.training.data.dataset import left_out

    names = sorted({name for name, _ in config.data})
    return tuple(f"{name}/{image}" for name in names for image in sorted(left_out(name)))


def _bar(steps: int, quiet: bool) -> "AbstractContextManager[Watch]":
    """A live bar on a terminal; a line a minute into a file."""
    return _live(steps) if sys.stdout.isatty() and not quiet else _lines(quiet)


@contextmanager
def _lines(quiet: bool) -> "Iterator[Watch]":
    shown = 0.0

    def watch(progress: "StepMetrics") -> None:
        nonlocal shown
        if quiet or (progress.kind == "train" and time.monotonic() - shown < 60):
            return
        shown = time.monotonic()
        values = "  ".join(f"{name} {value:.4g}" for name, value in progress.values.items())
        with suppress(OSError):  # a terminal that was closed must not end the run before its checkpoint
            print(f"step {progress.step}/{progress.steps}  {values}", flush=True)

    yield watch


@contextmanager
def _live(steps: int) -> "Iterator[Watch]":
    from rich import progress as rich

    columns = (rich.TextColumn("training"), rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, rich.TextColumn("{task.description}")) as bar:
        task = bar.add_task("", total=steps)
        state: dict[str, float] = {}

        def watch(progress: "StepMetrics") -> None:
            state.update({name: value for name, value in progress.values.items() if name != "lr"})
            text = "  ".join(f"{name} {value:.3g}" for name, value in state.items())
            with suppress(OSError):  # as above
                bar.update(task, completed=progress.step, description=text)

        yield watch
