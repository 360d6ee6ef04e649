"""The options with which training commands name their data, and the samples that they stand for."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uepnet.training.data.dataset import Sample

DATASETS = (
    "shanghaitech-a",
    "shanghaitech-b",
    "ucf-cc-50",
    "ucf-qnrf",
    "worldexpo10",
    "jhu-crowd",
    "nwpu",
    "mall",
    "list",
    "coco",
    "csv",
    "cvat",
    "label-studio",
    "yolo",
)
PICTURES = (".png", ".jpg", ".pdf")  # what matplotlib and Pillow both write


def data_options(parser: argparse.ArgumentParser, split: str, required: bool = True) -> None:
    parser.add_argument(
        "--dataset",
        required=required,
        metavar="NAME",
        help=f"one of {', '.join(DATASETS)}; or several, comma-separated",
    )
    parser.add_argument(
        "--root",
        required=required,
        metavar="DIR",
        help="folder of the data set; comma-separated: one for all data sets, or one for each",
    )
    split_options(parser, split)


def split_options(parser: argparse.ArgumentParser, split: str) -> None:
    parser.add_argument(
        "--split",
        default=split,
        choices=["train", "usable", "fit", "val", "calibration", "check", "test"],
        help="train or test of the release, or a part of train: val, calibration, check, fit (the rest), "
        f"usable (without the images of left_out.json) (default: {split})",
    )
    parser.add_argument("--fold", type=int, metavar="N", help="fold of ucf-cc-50, 1 to 5")


def pairs(dataset: str, root: str) -> tuple[tuple[str, str], ...]:
    """`a,b` and `root` or `root-a,root-b` -> ((a, root), ...)."""
    from uepnet.model.errors import DataError

    names, roots = dataset.split(","), root.split(",")
    if len(roots) not in (1, len(names)):
        raise DataError(f"--root needs one folder or {len(names)}, one for each data set, not {len(roots)}.")
    return tuple(zip(names, roots * len(names) if len(roots) == 1 else roots, strict=True))


def overwrite_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--overwrite", action="store_true", help="replace output files that exist")


def check_outputs(
    args: argparse.Namespace, tables: "Mapping[str, Path | None]", pictures: "Mapping[str, Path | None]"
) -> None:
    """Refuse outputs that must not or cannot be written before minutes of work; data sets and models are inputs.

    Outputs are given by option; None where the option is not used.
    """
    import uepnet.model
    from uepnet.model import outputs

    found = [outputs.Output(option, path) for option, path in tables.items() if path is not None]
    found += [outputs.Output(option, path, PICTURES) for option, path in pictures.items() if path is not None]
    model = getattr(args, "model", None) or Path(uepnet.model.__path__[0]) / "bundled"
    roots = [root for _, root in pairs(args.dataset, args.root)]
    outputs.check_outputs(found, [*roots, model], args.overwrite)


def samples_of(args: argparse.Namespace, split: str | None = None) -> "list[Sample]":
    from uepnet.training.data import dataset

    chosen = split or args.split
    return [
        sample
        for name, root in pairs(args.dataset, args.root)
        for sample in dataset.load(name, Path(root), chosen, args.fold)
    ]
