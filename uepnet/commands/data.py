"""`uepnet data`: what a data set holds, what is wrong with it, and which images are held back from training."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from uepnet.training.check import Report

CHECK_EPILOG = """examples:
  uepnet data check --dataset csv --root my-camera
  uepnet data check --dataset shanghaitech-a --root ShanghaiTech --split test
  uepnet data check --dataset coco --root export --json > report.json

Exit code 0: the split can be used (what is odd is listed); 1: some images are broken; 2: no such data set or folder.
docs/training.md shows the layout of each data set."""

SPLITS_EPILOG = """example:
  uepnet data splits --dataset csv --root my-camera > held-back.json

The splits depend on the names and counts of the images alone: the same on every machine."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.sources import split_options

    parser.description = "Check a data set, or list what is held back from training."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    raw = argparse.RawDescriptionHelpFormatter
    check = actions.add_parser(
        "check", help="list what is wrong, print statistics", epilog=CHECK_EPILOG, formatter_class=raw
    )
    check.description = "Read every image and annotation of a split; list what is wrong and print statistics."
    _add_source(check)
    split_options(check, split="train")
    check.add_argument("--json", action="store_true", help="print JSON, with every finding")
    splits = actions.add_parser(
        "splits",
        help="list the images held back from training",
        epilog=SPLITS_EPILOG,
        formatter_class=raw,
    )
    splits.description = "Print the images that training never sees, with the sha256 of each, as JSON."
    _add_source(splits)


def _add_source(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.sources import DATASETS

    parser.add_argument("--dataset", required=True, metavar="NAME", help=f"one of {', '.join(DATASETS)}")
    parser.add_argument("--root", required=True, type=Path, metavar="DIR", help="the folder that holds the release")


def run(args: argparse.Namespace) -> int:
    import json

    if args.action == "splits":
        from uepnet.training.splits import held_back

        print(json.dumps(held_back(args.dataset, args.root), indent=1))
        return 0
    report = _check(args)
    if args.json:
        print(json.dumps(report.as_json()))
    else:
        _show(report)
    return 1 if report.broken else 0


def _check(args: argparse.Namespace) -> "Report":
    import sys

    from rich.console import Console
    from rich.progress import Progress

    from uepnet.training.check import check

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("reading", total=None)
        return check(
            args.dataset,
            args.root,
            args.split,
            args.fold,
            watch=lambda done, total: bar.update(task, completed=done, total=total),
        )


def _show(report: "Report") -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    console.print(_statistics(report))
    if report.findings:
        console.print(_findings(report))
    for finding in [finding for finding in report.findings if finding.broken][:20]:
        console.print(f"[red]broken[/red] {escape(finding.item)}: {escape(finding.text)}", highlight=False)
    if report.broken:
        console.print(f"{report.broken} of {report.images} images are broken; --json lists every finding.")
    else:
        console.print(f"All {report.images} images can be used.")


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

    from uepnet.training.check import BROKEN, NOTED

    table = Table("finding", "files", "for example")
    for kind, meaning in (BROKEN | NOTED).items():
        items = [finding for finding in report.findings if finding.kind == kind]
        if items:
            style = "red" if kind in BROKEN else ""
            examples = "; ".join(f"{finding.item} {finding.text}" for finding in items[:2])
            table.add_row(meaning, str(len(items)), escape(examples), style=style)
    return table
