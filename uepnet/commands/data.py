"""`uepnet data`: check a data set, list its held-back images, make degraded copies."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from uepnet.training.data.dataset_check import Look, Report

CHECK_EPILOG = """examples:
  uepnet data check --dataset csv --root my-camera
  uepnet data check --dataset shanghaitech-a --root ShanghaiTech --split test
  uepnet data check --dataset coco --root export --json > report.json
  uepnet data check --dataset cvat --root my-camera --sheet labels.png

Exit code: 0 the split is usable (warnings are listed), 1 some images are unusable, 2 no such data set or folder.
docs/training.md shows the layout of each data set."""

SPLITS_EPILOG = """example:
  uepnet data splits --dataset csv --root my-camera > held-back.json

The splits depend only on the names and counts of the images, so they are the same on every machine."""

DEGRADE_EPILOG = """examples:
  uepnet data degrade --dataset shanghaitech-a,shanghaitech-b --root ShanghaiTech --out copies
  uepnet train --dataset shanghaitech-a,shanghaitech-b --root ShanghaiTech --degraded copies --out runs/robust

Kinds: h264 and h265 at crf 18 to 36, presets veryfast and medium, half as key
frames and half as later frames; jpeg at quality 20 to 95;
resampled, blurred, noisy, dark, faded, grey, interlaced. The same seed gives the same copies.
Existing copies are kept."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.sources import data_options, overwrite_option, split_options

    parser.description = "Check a data set, list its held-back images, or make degraded copies for training."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    raw = argparse.RawDescriptionHelpFormatter
    check = actions.add_parser("check", help="list problems and statistics", epilog=CHECK_EPILOG, formatter_class=raw)
    check.description = "Read every image and annotation of a split; list problems and statistics."
    _add_source(check)
    split_options(check, split="train")
    check.add_argument(
        "--sheet", type=Path, metavar="PNG", help="write a contact sheet: pictures with a dot on every label"
    )
    overwrite_option(check)
    check.add_argument(
        "--no-model", action="store_true", help="do not compare the labels with the bundled model's counts"
    )
    check.add_argument("--json", action="store_true", help="print JSON with every finding")
    splits = actions.add_parser(
        "splits",
        help="list the images that are held back from training",
        epilog=SPLITS_EPILOG,
        formatter_class=raw,
    )
    splits.description = "Print the images that are held back from training, with their sha256, as JSON."
    _add_source(splits)
    degrade = actions.add_parser(
        "degrade", help="make degraded copies of the images for training", epilog=DEGRADE_EPILOG, formatter_class=raw
    )
    degrade.description = "Write degraded copies of every image, one per kind, for `uepnet train --degraded`."
    data_options(degrade, split="usable")
    degrade.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for the copies")
    degrade.add_argument(
        "--kinds", default="h264,h265", metavar="LIST", help="comma-separated kinds, see below (default: h264,h265)"
    )
    degrade.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all random choices (default: 0)")


def _add_source(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.sources import DATASETS

    parser.add_argument("--dataset", required=True, metavar="NAME", help=f"one of {', '.join(DATASETS)}")
    parser.add_argument("--root", required=True, type=Path, metavar="DIR", help="folder of the data set")


def run(args: argparse.Namespace) -> int:
    import json

    if args.action == "splits":
        from uepnet.training.data.splits import held_back

        print(json.dumps(held_back(args.dataset, args.root), indent=1))
        return 0
    if args.action == "degrade":
        return _degrade(args)
    if args.sheet is not None:
        from uepnet.model.outputs import Output, check_outputs

        check_outputs([Output("--sheet", args.sheet, (".png", ".jpg"))], [args.root], args.overwrite)
    report = _check(args)
    if args.sheet is not None:
        _write_sheet(args)
    if args.json:
        print(json.dumps(report.as_json()))
    else:
        _show(report)
    return 0 if report.usable else 1


def _degrade(args: argparse.Namespace) -> int:
    import sys

    from rich.console import Console
    from rich.progress import Progress

    from uepnet.commands.shared.sources import pairs
    from uepnet.training.data.dataset import load
    from uepnet.training.data.degraded_copies import make_copies

    kinds = args.kinds.split(",")
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        for name, root in pairs(args.dataset, args.root):
            samples = load(name, Path(root), args.split, args.fold)
            task = bar.add_task(name, total=len(samples))
            made = make_copies(samples, name, Path(root), args.out, kinds, args.seed, lambda: bar.advance(task))  # noqa: B023
            print(f"{name}, {root}: {made} copies made, {len(samples) * len(kinds) - made} existed")
    return 0


def _check(args: argparse.Namespace) -> "Report":
    import sys

    from rich.console import Console
    from rich.progress import Progress

    from uepnet.training.data.dataset_check import check

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("reading", total=None)
        return check(
            args.dataset,
            args.root,
            args.split,
            args.fold,
            watch=lambda done, total: bar.update(task, completed=done, total=total),
            look=None if args.no_model else _model(),
        )


def _model() -> "Look | None":
    """The bundled model's count map of a picture; None where no inference engine is installed."""
    import numpy as np

    from uepnet.model.count import count_image
    from uepnet.model.errors import ModelError

    try:
        from uepnet.model.runtime import Runtime

        runtime = Runtime(None, device="cpu")
    except (ModuleNotFoundError, ModelError):
        return None
    return lambda pixels: np.asarray(count_image(pixels, runtime.artifact, runtime.run_tiles).count_map, np.float64)


def _write_sheet(args: argparse.Namespace) -> None:
    from uepnet.model.outputs import picture_format, whole_file
    from uepnet.training.data.contact_sheet import contact_sheet
    from uepnet.training.data.dataset import load

    sheet = contact_sheet(load(args.dataset, args.root, args.split, args.fold))
    with whole_file(args.sheet) as file:
        sheet.save(file, picture_format(args.sheet).replace("jpg", "jpeg"))


def _show(report: "Report") -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    console.print(_statistics(report))
    if report.findings:
        console.print(_findings(report))
    for finding in [finding for finding in report.findings if finding.broken][:20]:
        console.print(f"[red]broken[/red] {escape(finding.item)}: {escape(finding.text)}", highlight=False)
    for finding in [finding for finding in report.findings if finding.kind == "turned"]:
        console.print(f"[yellow]doubtful[/yellow] {escape(finding.text)}: look at --sheet", highlight=False)
    if report.broken:
        console.print(f"{report.broken} of {report.images} images are broken; --json lists every finding.")
    elif report.usable:
        console.print(f"All {report.images} images can be used.")
    else:
        console.print("No image is broken, but the split cannot be trained on.")


def _statistics(report: "Report") -> "Table":
    from rich.table import Table

    values = report.as_json()
    count = values["count"]
    assert isinstance(count, dict)
    by_area = sorted(report.sizes, key=lambda size: size[0] * size[1]) or [(0, 0)]
    smallest, largest = by_area[0], by_area[-1]
    common = ", ".join(f"{width} x {height} ({images})" for (width, height), images in report.sizes.most_common(3))
    table = Table(title=f"{report.dataset}, split {report.split}", show_header=False)
    table.add_row("images", f"{report.images:,}")
    table.add_row("people", f"{values['people']:,}")
    table.add_row("people an image", f"{count['min']:,} to {count['max']:,}")
    table.add_row("  median, mean", f"{count['median']:.1f}, {count['mean']:.1f}")
    table.add_row("sizes", f"{len(report.sizes)}, from {smallest[0]} x {smallest[1]} to {largest[0]} x {largest[1]}")
    table.add_row("  most common", common)
    table.add_row("points outside the frame", f"{report.points_outside:,}")
    table.add_row("points marked twice", f"{report.duplicate_points:,}")
    return table


def _findings(report: "Report") -> "Table":
    """A row a kind: how many, and the first few."""
    from rich.markup import escape
    from rich.table import Table

    from uepnet.training.data.dataset_check import BROKEN, NOTED

    table = Table("finding", "files", "for example")
    for kind, meaning in (BROKEN | NOTED).items():
        items = [finding for finding in report.findings if finding.kind == kind]
        if items:
            style = "red" if kind in BROKEN else ""
            examples = "; ".join(f"{finding.item} {finding.text}" for finding in items[:2])
            table.add_row(meaning, str(len(items)), escape(examples), style=style)
    return table
