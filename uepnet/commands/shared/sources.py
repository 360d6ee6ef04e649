"""The options by which every training command names its data, and what they stand for."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uepnet.training.dataset import Sample

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
)
PICTURES = (".png", ".jpg", ".pdf")


def data_options(parser: argparse.ArgumentParser, split: str) -> None:
    parser.add_argument(
        "--dataset", required=True, metavar="NAME", help=f"one of {', '.join(DATASETS)}; several by commas"
    )
    parser.add_argument(
        "--root", required=True, help="the folder that holds the release; one for all, or one a data set, by commas"
    )
    split_options(parser, split)


def split_options(parser: argparse.ArgumentParser, split: str) -> None:
    parser.add_argument(
        "--split",
        default=split,
        choices=["train", "fit", "val", "calibration", "check", "test"],
        help=f"the release's train or test; or parts of train: val, calibration, check, fit (the rest) ({split})",
    )
    parser.add_argument("--fold", type=int, help="1 to 5, for ucf-cc-50")


def pairs(dataset: str, root: str) -> tuple[tuple[str, str], ...]:
    """`a,b` and `root` or `root-a,root-b` -> ((a, root), ...)."""
    from uepnet.model.errors import DataError

    names, roots = dataset.split(","), root.split(",")
    if len(roots) not in (1, len(names)):
        raise DataError(f"{len(names)} data sets need one root or {len(names)}, not {len(roots)}.")
    return tuple(zip(names, roots * len(names) if len(roots) == 1 else roots, strict=True))


def check_outputs(table: Path | None = None, picture: Path | None = None) -> None:
    """Refuse at once what could not be written after minutes of work."""
    from uepnet.model.errors import InputError, OutputError

    for path in (table, picture):
        if path is not None and path.is_dir():
            raise OutputError(f"{path} cannot be written: it is a folder.")
        if path is not None and not path.parent.is_dir():
            raise OutputError(f"{path} cannot be written: there is no folder {path.parent}.")
    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise InputError(f"{picture}: a picture ends in {', '.join(PICTURES)}.")


def samples_of(args: argparse.Namespace, split: str | None = None) -> "list[Sample]":
    from uepnet.training import dataset

    chosen = split or args.split
    return [
        sample
        for name, root in pairs(args.dataset, args.root)
        for sample in dataset.load(name, Path(root), chosen, args.fold)
    ]
