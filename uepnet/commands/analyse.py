"""`uepnet analyse`: the tables and figures of the paper, and choices of decoding and scale, from data.

Each analysis is a module of `uepnet.commands.analyses`; only the one that is asked for is imported.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from uepnet.commands.analyses.shared import AnalysisResult, Table

ANALYSES = {
    "discretisation": "error of each partition and kind of proxy if every cell is classified correctly (Table 6)",
    "intervals": "the same for several numbers of intervals (the question of Figure 4, without training)",
    "contributions": "share of a model's error from each true interval and from the background (Figure 6)",
    "gradients": "|dL / d output| of a training run's cells by the size of their error (Figure 5)",
    "learning": "loss, learning rate and validation errors of a run over its steps; needs --model alone",
    "report": "quality of a model: errors, ranges, images without people, the same image at other sizes",
    "scale": "constants for choosing the scale from the image (docs/scale.md), compared with the fixed scale",
    "familiarity": "fit the head that recognises images unlike the training images; export the run again afterwards",
    "decoding": "the decoding of a run with the lowest error among those that count nobody in images without people",
}
PLOTTED = ("discretisation", "intervals", "contributions", "gradients", "learning")
WITHOUT_DATA = ("learning",)
WRITTEN = ("decoding", "scale", "familiarity")
EPILOG = (
    "what:\n"
    + "\n".join(f"  {name:16} {summary}" for name, summary in ANALYSES.items())
    + """

examples:
  uepnet analyse discretisation --dataset shanghaitech-b --root ShanghaiTech --split test --json
  uepnet analyse intervals --dataset shanghaitech-a --root ShanghaiTech --plot sweep.png
  uepnet analyse contributions --dataset shanghaitech-b --root ShanghaiTech --split val --model models/mine
  uepnet analyse gradients --dataset shanghaitech-b --root ShanghaiTech --model runs/uep --beside runs/mse --plot g.png
  uepnet analyse learning --model runs/paper-a --plot curve.png
  uepnet analyse decoding --dataset shanghaitech-b --root ShanghaiTech --model runs/mine --empty no-people --write"""
)
TOO_MANY = (
    "uepnet: Every decoding counts people in images without people, so none is chosen; "
    "continue training with more such images (--empty, --empty-share)."
)


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.sources import data_options, overwrite_option

    parser.description = "Make the tables and figures of the paper from data. Intervals are fitted on the split train."
    parser.epilog = EPILOG
    parser.add_argument("what", choices=list(ANALYSES), help="see below")
    data_options(parser, split="val", required=False)
    parser.add_argument(
        "--intervals", type=int, default=25, metavar="N", help="number of intervals, background included (default: 25)"
    )
    parser.add_argument(
        "--cell", type=int, choices=[8, 16, 32], default=8, help="side of a cell in pixels (default: 8)"
    )
    parser.add_argument(
        "--knee",
        type=float,
        default=0.5,
        metavar="PEOPLE",
        help="count per cell at which two-linear changes its step (default: 0.5)",
    )
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="model directory or training run (default: the bundled model)"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="RUN",
        help="gradients: a second run, such as a regression, to compare with",
    )
    parser.add_argument(
        "--empty",
        default="",
        metavar="DIR",
        help="decoding, familiarity: folder of images without people; the half that training does not use is counted",
    )
    parser.add_argument(
        "--scales",
        type=float,
        nargs="+",
        default=[],
        metavar="FACTOR",
        help="decoding: input scales to try (default: the scale of the model)",
    )
    parser.add_argument(
        "--no-mirror", action="store_true", help="decoding: do not try mirroring, which doubles the time of a count"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"{', '.join(WRITTEN)}: write the result into the artifact of the model",
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help=f"draw the result of {', '.join(PLOTTED)}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    overwrite_option(parser)


def run(args: argparse.Namespace) -> int:
    import json

    _check_effect("--plot", bool(args.plot), args.what, PLOTTED)
    _check_effect("--beside", args.beside is not None, args.what, ("gradients",))
    _check_effect("--write", args.write, args.what, WRITTEN)
    _check_places(args)
    answer: AnalysisResult = import_module(f"uepnet.commands.analyses.{args.what}").analyse(args)
    if args.json:
        print(json.dumps(answer.json))
    else:
        _print_table(answer.table)
        if answer.sentence:
            print(answer.sentence)
    if answer.json.get("fit_for_service") is False:
        print(TOO_MANY, file=sys.stderr)
        return 1
    return 0


def _check_places(args: argparse.Namespace) -> None:
    """Data where it is needed, and a picture that can be written."""
    from uepnet.commands.shared.sources import PICTURES, check_outputs
    from uepnet.model import outputs
    from uepnet.model.errors import InputError

    if args.what in WITHOUT_DATA:
        plots = [outputs.Output("--plot", args.plot, PICTURES)] if args.plot else []
        outputs.check_outputs(plots, [args.model] if args.model else [], args.overwrite)
        return
    if not (args.dataset and args.root):
        raise InputError(f"The analysis {args.what} needs --dataset and --root.")
    check_outputs(args, {}, {"--plot": args.plot})


def _check_effect(option: str, given: bool, what: str, possible: "Sequence[str]") -> None:
    """An option that the analysis would ignore is refused."""
    from uepnet.model.errors import InputError

    if given and what not in possible:
        raise InputError(f"{option} has no effect on {what}: it works with {', '.join(possible)}.")


def _print_table(rows: "Table") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for title in rows[0]:
        table.add_column(str(title), justify="right")
    for row in rows[1:]:
        table.add_row(*(cell if isinstance(cell, str) else f"{cell:.4g}" for cell in row))
    Console().print(table)
