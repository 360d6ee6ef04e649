"""`uepnet count`: people in images."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from uepnet.commands.shared.options import add_counting, counting_inputs, load_zones, open_backend

if TYPE_CHECKING:
    from rich.console import Console

    from uepnet.client.backends import Backend
    from uepnet.commands.shared.inputs import Input
    from uepnet.commands.shared.results import CountReport, Entry
    from uepnet.model.count import Count
    from uepnet.model.zones import Zone

    Work = tuple[Input, Path | None]  # an image, and where its overlay goes

EPILOG = """examples:
  uepnet count crowd.jpg
  uepnet count photos/ 'more/**/*.png' --csv counts.csv
  uepnet count photos/ --csv counts.csv --resume      continue where it was interrupted
  uepnet count photos/ --overlay drawn/ --zones zones.json
  uepnet count panorama.jpg --overlay drawn/ --explain-scale
  uepnet count photos/ --server http://localhost:8000 --json | jq '.[].count'
  curl -s https://example.org/crowd.jpg | uepnet count -

An image that cannot be counted is reported, and the others are counted. A file is never written over an input, and
over an existing output only with --overwrite.
Exit codes: 0 all images counted, 1 some failed, 2 wrong usage or nothing to count, 130 interrupted."""

MIN_PROGRESS = 5  # a bar is shown for more images than this


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Count the people in images, with the range in which the true number probably lies."
    parser.epilog = EPILOG
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="images, folders (with their sub-folders), 'patterns', or - for standard input",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list on standard output")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write a CSV table; - for standard output")
    parser.add_argument(
        "--overlay", type=Path, metavar="DIR", help="write each image with its heat map into this folder, as PNG"
    )
    parser.add_argument(
        "--explain-scale",
        action="store_true",
        help="in the pictures of --overlay, show which pass counted which part instead of the heat map (docs/scale.md)",
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--resume", action="store_true", help="continue the table of --csv: count only images that it does not have"
    )
    again.add_argument("--overwrite", action="store_true", help="replace output files that exist")
    parser.add_argument("--quiet", action="store_true", help="print no table and no progress; errors are printed")
    add_counting(parser)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from uepnet.commands.shared.inputs import check_inputs, inputs
    from uepnet.commands.shared.progress import Progress
    from uepnet.commands.shared.terminal import complain

    check_inputs(args.paths)
    check_options(args)
    zones = load_zones(args)
    console = Console()
    failed = 0
    with ExitStack() as stack:
        backend = stack.enter_context(closing(open_backend(args, with_map=args.overlay is not None)))
        reports, counted = open_reports(args, console, zones, backend)
        for report in reports:
            stack.enter_context(closing(report))
        # On the table's own screen where that is a terminal: rows and bar must not overwrite each other.
        screen = console if console.is_terminal and not args.json else Console(stderr=True)
        progress = stack.enter_context(Progress(screen, args.quiet))
        if progress.shown and (total := sum(1 for _ in inputs(args.paths))) > MIN_PROGRESS:
            progress.start(total, sum(image.shown in counted for image in inputs(args.paths)) if counted else 0)
        work = (item for item in with_overlays(args) if item[0].shown not in counted)
        options = {"replace": args.overwrite, "keep": args.resume, "explain": args.explain_scale}
        for entry in count_all(work, backend, zones, **options):
            for report in reports:
                report.add(entry)
            if "error" in entry:
                failed += 1
                complain(f"{entry['path']}: {entry['error']}")
            progress.advance()
    if counted and not args.quiet:
        print(f"{len(counted)} images had been counted before.", file=sys.stderr)
    return 1 if failed else 0


def check_options(args: argparse.Namespace) -> None:
    """All that can be wrong with the outputs, found before the model is loaded and anything is written."""
    from uepnet.commands.shared.inputs import inputs
    from uepnet.model.errors import InputError
    from uepnet.model.outputs import Output, check_outputs, is_regular, is_standard_output

    to_standard_output = args.csv is not None and is_standard_output(args.csv)
    if args.json and to_standard_output:
        raise InputError("--json and --csv both write to standard output: give --csv the name of a file.")
    if args.resume and (args.csv is None or not is_regular(args.csv)):
        raise InputError("--resume continues the table of --csv: give --csv the name of a file.")
    if args.explain_scale and (args.overlay is None or args.server is not None):
        raise InputError("--explain-scale needs --overlay DIR, and the model in this process (no --server).")
    outputs = []
    if args.csv is not None:
        advice = "--resume continues it, --overwrite replaces it"
        outputs.append(Output("--csv", args.csv, resumed=args.resume, advice=advice))
    if (args.json or not args.quiet) and not to_standard_output:
        outputs.append(Output("standard output", Path("-")))
    if args.overlay is not None:
        _check_overlay_folder(args)
        # A folder that is not there yet holds nothing that could be overwritten.
        pictures = (path for _, path in with_overlays(args) if path is not None and os.path.lexists(path))
        # With --resume a picture that is there stays as it is.
        outputs += [Output("--overlay", path, resumed=args.resume) for path in pictures]
    read = chain[str | Path](counting_inputs(args), (image.path for image in inputs(args.paths)))
    check_outputs(outputs, read, args.overwrite)


def _check_overlay_folder(args: argparse.Namespace) -> None:
    """Overlays in a folder that is being counted would be counted, too."""
    from uepnet.model.errors import InputError

    place = args.overlay.resolve()
    if place.exists() and not place.is_dir():
        raise InputError(f"--overlay {args.overlay} is not a folder.")
    for argument in args.paths:
        if os.path.isdir(argument) and place.is_relative_to(Path(argument).resolve()):  # noqa: PTH112
            raise InputError(
                f"--overlay {args.overlay} lies in the folder {argument}, which is counted: choose a folder outside it."
            )


def with_overlays(args: argparse.Namespace) -> "Iterator[Work]":
    """The images, each with the place of its overlay: a.jpg -> a.png; a.jpg of another folder -> a-2.png."""
    from uepnet.commands.shared.inputs import inputs

    used: set[PurePath] = set()
    for image in inputs(args.paths):
        if args.overlay is None:
            yield image, None
            continue
        name, number = image.relative.with_suffix(".png"), 1
        while name in used:
            number += 1
            name = image.relative.with_name(f"{image.relative.stem}-{number}.png")
        used.add(name)
        yield image, args.overlay / name


def open_reports(
    args: argparse.Namespace, console: "Console", zones: "Iterable[Zone]", backend: "Backend"
) -> "tuple[list[CountReport], set[str]]":
    """What the counts are written to, and the images that were counted before."""
    from uepnet.commands.shared.csv_report import CsvReport
    from uepnet.commands.shared.results import JsonReport, TableReport
    from uepnet.model.outputs import is_standard_output

    names = [zone.name for zone in zones]
    reports: list[CountReport] = []
    counted: set[str] = set()
    if args.csv is not None:
        table = CsvReport(args.csv, names, args.resume, " ".join(backend.model))
        reports.append(table)
        counted = table.counted
    if args.json:
        reports.append(JsonReport(sys.stdout))
    elif not args.quiet and not (args.csv is not None and is_standard_output(args.csv)):
        reports.append(TableReport(console, names))
    return reports, counted


def count_all(
    images: "Iterable[Work]",
    backend: "Backend",
    zones: "tuple[Zone, ...]",
    replace: bool,
    keep: bool,
    explain: bool = False,
) -> "Iterator[Entry]":
    """An entry for each image, in order; only the images in flight are in memory. `keep` leaves overlays that exist."""
    from uepnet.client.backends import count_fields, in_order
    from uepnet.model.errors import InferenceError, InputError, Unreachable
    from uepnet.model.explain import explain_scales
    from uepnet.model.image import encode_png, load_image
    from uepnet.model.render import overlay

    def draw(content: bytes, count: "Count") -> bytes:
        image = load_image(content)
        return encode_png(explain_scales(image, count) if explain else overlay(image, count, zones))

    def work(item: "Work") -> "tuple[Entry, bytes | None]":
        image, picture = item
        try:
            content = image.read()
            count, model = backend.count(content, zones)
            drawn = None if picture is None else draw(content, count)
            return {"path": image.path, **count_fields(count, model)}, drawn
        except Unreachable:
            raise  # the other images would fare no better
        except (InputError, InferenceError) as error:
            return {"path": image.path, "error": str(error)}, None

    with closing(in_order(images, work, backend.in_flight, ahead=backend.in_flight)) as results:
        for (_, picture), (entry, drawn) in results:
            if picture is not None and drawn is not None and not (keep and os.path.lexists(picture)):
                write_picture(picture, drawn, replace)
            yield entry


def write_picture(path: Path, content: bytes, replace: bool) -> None:
    from uepnet.model.errors import OutputError
    from uepnet.model.outputs import whole_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from None
    if not replace and os.path.lexists(path):  # it appeared since the outputs were checked
        raise OutputError(f"{path} exists: choose another folder, or replace it with --overwrite.")
    with whole_file(path) as file:
        file.write(content)
