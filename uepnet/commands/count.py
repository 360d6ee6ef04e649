"""`uepnet count`: people in images."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from uepnet.commands.options import add_counting, load_zones, open_backend

if TYPE_CHECKING:
    from rich.console import Console

    from uepnet.commands.inputs import Input
    from uepnet.commands.results import Entry, Report
    from uepnet.model.zones import Zone
    from uepnet.service.backends import Backend

EPILOG = """examples:
  uepnet count crowd.jpg
  uepnet count photos/ 'more/**/*.png' --csv counts.csv
  uepnet count photos/ --overlay drawn/ --zones zones.json
  uepnet count photos/ --server http://localhost:8000 --json | jq '.[].count'
  curl -s https://example.org/crowd.jpg | uepnet count -

One bad file is reported and the rest go on. Exit code: 0 all counted, 1 some failed, 2 nothing to count."""

A_HANDFUL = 5


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Count the people in images, with the range in which the true number probably lies."
    parser.epilog = EPILOG
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="images, folders (with all below them), 'patterns', or - for standard input",
    )
    parser.add_argument("--json", action="store_true", help="a JSON list on standard output")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a table for spreadsheets; - for standard output")
    parser.add_argument("--overlay", type=Path, metavar="DIR", help="write each picture with its heat map here")
    parser.add_argument("--quiet", action="store_true", help="no table, no progress; errors still show")
    add_counting(parser)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from uepnet.commands.inputs import check_inputs, inputs
    from uepnet.commands.progress import Progress
    from uepnet.model.errors import InputError

    if args.json and args.csv == Path("-"):
        raise InputError("--json and --csv - both want standard output: give --csv a file.")
    check_inputs(args.paths)
    zones = load_zones(args)
    console = Console()
    failed = 0
    with ExitStack() as stack:
        backend = stack.enter_context(closing(open_backend(args, with_map=args.overlay is not None)))
        reports = [stack.enter_context(closing(report)) for report in open_reports(args, console, zones)]
        # On the table's own screen where that is a terminal: rows and bar must not overwrite each other.
        screen = console if console.is_terminal and not args.json else Console(stderr=True)
        progress = stack.enter_context(Progress(screen, args.quiet))
        if progress.shown and (total := sum(1 for _ in inputs(args.paths))) > A_HANDFUL:
            progress.start(total)
        for entry in count_all(inputs(args.paths), backend, zones, args.overlay):
            for report in reports:
                report.add(entry)
            if "error" in entry:
                failed += 1
                print(f"uepnet: {entry['path']}: {entry['error']}", file=sys.stderr)
            progress.advance()
    return 1 if failed else 0


def open_reports(args: argparse.Namespace, console: "Console", zones: "Iterable[Zone]") -> "Iterator[Report]":
    from uepnet.commands.results import CsvReport, JsonReport, TableReport

    names = [zone.name for zone in zones]
    if args.csv is not None:
        yield CsvReport(args.csv, names)
    if args.json:
        yield JsonReport(sys.stdout)
    elif not args.quiet and args.csv != Path("-"):
        yield TableReport(console, names)


def count_all(
    images: "Iterable[Input]", backend: "Backend", zones: "tuple[Zone, ...]", overlay_dir: Path | None
) -> "Iterator[Entry]":
    """An entry an image, in order; only as many images as are in flight lie in memory."""
    from uepnet.model.errors import InferenceError, InputError, Unreachable
    from uepnet.model.image import load_image
    from uepnet.model.render import encode_png, overlay
    from uepnet.service.backends import count_fields, in_order

    def work(image: "Input") -> "tuple[Entry, bytes | None]":
        try:
            content = image.read()
            count, model = backend.count(content, zones)
            drawn = None if overlay_dir is None else encode_png(overlay(load_image(content), count, zones))
            return {"path": image.path, **count_fields(count, model)}, drawn
        except Unreachable:
            raise  # the other images would fare no better
        except (InputError, InferenceError) as error:
            return {"path": image.path, "error": str(error)}, None

    used: set[PurePath] = set()
    with closing(in_order(images, work, backend.in_flight, ahead=backend.in_flight)) as results:
        for image, (entry, drawn) in results:
            if overlay_dir is not None and drawn is not None:
                write_picture(overlay_dir / _unused(image.relative, used), drawn)
            yield entry


def write_picture(path: Path, content: bytes) -> None:
    from uepnet.model.errors import OutputError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from None


def _unused(relative: PurePath, used: set[PurePath]) -> PurePath:
    """The overlay's name: a.jpg -> a.png; a second a.jpg, from another folder, -> a-2.png."""
    name, number = relative.with_suffix(".png"), 1
    while name in used:
        number += 1
        name = relative.with_name(f"{relative.stem}-{number}.png")
    used.add(name)
    return name
