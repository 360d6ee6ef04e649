"""`uepnet evaluate`: a model's error on annotated images, through the path that is served."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uepnet.model.artifact import Artifact
    from uepnet.model.count import RunTiles
    from uepnet.training.dataset import Sample
    from uepnet.training.evaluate import Result

EPILOG = """examples:
  uepnet evaluate --dataset shanghaitech-b --root ShanghaiTech --split test --json
  uepnet evaluate --dataset csv --root my-camera --split val --model models/mine --csv errors.csv --worst worst.png
  uepnet evaluate --dataset shanghaitech-a,shanghaitech-b --root ShanghaiTech --model models/mine --calibrate
  uepnet evaluate --dataset csv --root my-camera --split train --calibrate train

MAE and RMSE (papers call it MSE) are over images; NAE is the error as a share of the people, bias its mean with sign.
The annotated count includes points outside the frame. `--calibrate` writes the range into the model's artifact: fit it
with the exported model, on the split `calibration` if you trained on this data, or on all of it if you did not."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.sources import data_options

    parser.description = "Measure a model's error on annotated images."
    parser.epilog = EPILOG
    data_options(parser, split="val")
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="a model directory or a run; default: the bundled model"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--precision", default="auto", help="auto, fp32, fp16 or int8")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every image's truth and count")
    parser.add_argument("--worst", type=Path, metavar="PNG", help="a gallery of the worst: image, truth, prediction")
    parser.add_argument(
        "--calibrate",
        nargs="?",
        const="calibration",
        choices=["train", "val", "calibration", "test"],
        metavar="SPLIT",
        help="first fit the range around a count on images that the model never saw (the split `calibration`)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    import json

    from uepnet.commands.models import open_model
    from uepnet.commands.sources import check_outputs, samples_of
    from uepnet.training.evaluate import per_scene, summary, write_csv

    check_outputs(args.csv, args.worst)
    artifact, run_tiles, running = open_model(args.model, args.device, args.precision, args.threads)
    samples = samples_of(args)
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


def _calibrate(args: argparse.Namespace, artifact: "Artifact", run_tiles: "RunTiles") -> "Artifact":
    """The artifact with a range fitted to held-back images, written to where the model lies."""
    from uepnet.commands.sources import samples_of
    from uepnet.model.errors import OutputError
    from uepnet.model.runtime import BUNDLED
    from uepnet.training.calibrate import calibrate

    fitted = calibrate(_evaluate(samples_of(args, args.calibrate), artifact, run_tiles, args.quiet))
    calibrated = artifact.model_copy(update={"calibration": fitted})
    folder = args.model or BUNDLED
    try:
        calibrated.save(folder)
    except OSError as error:
        raise OutputError(f"The range cannot be written into {folder}: {error.strerror}.") from None
    return calibrated


def _show(answer: "Mapping[str, object]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in answer.items():
        table.add_row(name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
    Console().print(table)
