"""`uepnet evaluate`: a model's error on annotated images, through the path that is served."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uepnet.model.artifact import Artifact
    from uepnet.model.count import RunTiles
    from uepnet.training.data.dataset import Sample
    from uepnet.training.evaluate import Result

HELD_BACK = "held-back"
EPILOG = """examples:
  uepnet evaluate --dataset shanghaitech-b --root ShanghaiTech --split test --json
  uepnet evaluate --dataset csv --root my-camera --split val --model models/mine --csv errors.csv --worst worst.png
  uepnet evaluate --dataset shanghaitech-a,shanghaitech-b --root ShanghaiTech --model models/mine --calibrate
  uepnet evaluate --dataset csv --root my-camera --split train --calibrate train

MAE and RMSE (MSE in papers) are over images; NAE is the mean of error / true count; bias is the mean signed error.
The annotated count includes points outside the frame. `--calibrate` writes the range into the artifact of the
model. Fit it with the exported model: on the split `calibration` if you trained on this data, else on `train`. With
several data sets each is a kind of scene of the same weight."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.options import add_runtime
    from uepnet.commands.shared.sources import data_options, overwrite_option

    parser.description = "Measure the error of a model on annotated images."
    parser.epilog = EPILOG
    data_options(parser, split="val")
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="model directory or training run (default: the bundled model)"
    )
    add_runtime(parser)
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="table with the true count and the count of every image"
    )
    parser.add_argument(
        "--worst",
        type=Path,
        metavar="PNG",
        help="gallery of the six worst images and the three best: image, truth, prediction",
    )
    parser.add_argument(
        "--calibrate",
        nargs="?",
        const="calibration",
        choices=["train", "val", "calibration", HELD_BACK, "test"],
        metavar="SPLIT",
        help="first fit the range on images that the model was not trained on: train, val, calibration, held-back "
        "(val and calibration, or the validation images of the release) or test (without SPLIT: calibration)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    overwrite_option(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    import json

    from uepnet.commands.shared.models import open_model
    from uepnet.commands.shared.sources import check_outputs, samples_of
    from uepnet.training.evaluate import per_scene, summary, write_csv

    check_outputs(args, {"--csv": args.csv}, {"--worst": args.worst})
    if args.calibrate:
        _check_calibrated(args.model)
    artifact, run_tiles, running = open_model(args.model, args.device, args.precision, args.threads, args.engine)
    samples = samples_of(args)
    for sample in samples:  # what is missing or unreadable is said before minutes of counting
        _ = sample.points, sample.size
    if args.calibrate:
        artifact = _calibrate(args, artifact, run_tiles)
    results = _evaluate(samples, artifact, run_tiles, args.quiet)
    answer = summary(results) | {"model": f"{artifact.name} {artifact.version} ({running})"}
    scenes = per_scene(results)
    if args.csv:
        write_csv(results, args.csv)
    if args.worst:
        from uepnet.training.gallery import draw_worst

        draw_worst(samples, results, artifact, args.worst)
    if args.json:
        print(json.dumps(answer | ({"scenes": scenes} if scenes else {})))
    else:
        _show(answer | {f"scene {name}": mae for name, mae in scenes.items()})
    return 0


def _evaluate(samples: "list[Sample]", artifact: "Artifact", run_tiles: "RunTiles", quiet: bool) -> "list[Result]":
    """Every image counted, under a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import Progress

    from uepnet.training.evaluate import evaluate

    with Progress(console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task("counting", total=len(samples))
        return evaluate(samples, artifact, run_tiles, watch=lambda _: bar.advance(task))


def _check_calibrated(model: Path | None) -> None:
    """The range is written into the model, and the bundled model is never changed."""
    from uepnet.model.errors import InputError
    from uepnet.model.runtime import BUNDLED

    if model is None or (model.exists() and model.samefile(BUNDLED)):
        raise InputError(
            "--calibrate changes the model, and the bundled model is never changed: pass a copy of it with --model."
        )


def _check_unseen(model: Path, artifact: "Artifact", samples: "list[Sample]") -> None:
    """A model is more right on pictures that it was trained on: a range fitted to them would be too narrow."""
    from uepnet.model.errors import InputError
    from uepnet.training.data.seen import digest, seen_by

    seen = seen_by(artifact)
    known = sum(digest(sample.image) in seen for sample in samples) if seen else 0
    if known:
        raise InputError(
            f"{model} was trained on {known} of these {len(samples)} pictures, and a range fitted to them would be too "
            "narrow: calibrate with pictures that it has not seen, or keep the range that it has."
        )


def _held_back(name: str) -> tuple[str, ...]:
    """The splits that training leaves out, but for `check`; of a data set with validation images of its own, those."""
    from uepnet.training.data.dataset import OWN_VAL

    return ("val",) if name.partition(":")[0] in OWN_VAL else ("val", "calibration")


def _calibrate(args: argparse.Namespace, artifact: "Artifact", run_tiles: "RunTiles") -> "Artifact":
    """The artifact with a range fitted to held-back images; also saved in the model directory."""
    from uepnet.commands.shared.sources import pairs
    from uepnet.model.errors import OutputError
    from uepnet.training.calibrate import calibrate
    from uepnet.training.data import dataset

    groups = [
        [sample for split in splits for sample in dataset.load(name, Path(root), split, args.fold)]
        for name, root in pairs(args.dataset, args.root)
        for splits in [_held_back(name) if args.calibrate == HELD_BACK else (args.calibrate,)]
    ]
    _check_unseen(args.model, artifact, [sample for group in groups for sample in group])
    fitted = calibrate([_evaluate(group, artifact, run_tiles, args.quiet) for group in groups])
    calibrated = artifact.model_copy(update={"calibration": fitted})
    try:
        calibrated.save(args.model)
    except OSError as error:
        raise OutputError(f"The range cannot be written into {args.model}: {error.strerror}.") from None
    return calibrated


def _show(answer: "Mapping[str, object]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in answer.items():
        table.add_row(name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
    Console().print(table)
