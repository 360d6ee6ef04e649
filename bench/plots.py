"""The pictures that `uepnet bench` draws: never over an input, and over another file only with --overwrite."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")


def plot_options(parser: argparse.ArgumentParser, drawn: str) -> None:
    parser.add_argument("--plot", type=Path, metavar="FILE", help=f"draw {drawn}: {', '.join(SUFFIXES)}")
    parser.add_argument("--overwrite", action="store_true", help="replace the picture if it exists")


def check_plot(args: argparse.Namespace) -> None:
    """Refuse a picture that cannot or must not be written, before minutes of measuring."""
    from uepnet.model.outputs import Output, check_outputs

    if args.plot is None:
        return
    import matplotlib  # noqa: F401 - that it is missing is told now, too

    model = getattr(args, "model", None)
    inputs = [*(args.images or ()), *([model] if model else [])]
    check_outputs([Output("--plot", args.plot, SUFFIXES)], inputs, args.overwrite)


def save(figure: "Figure", path: Path) -> None:
    from uepnet.model.outputs import picture_format, whole_file

    with whole_file(path) as file:
        figure.savefig(file, dpi=120, format=picture_format(path))
