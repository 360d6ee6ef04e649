"""`uepnet prelabel`: points that a model proposes, in a file that a labelling tool imports."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from uepnet.commands.shared.counted import CountedPicture
    from uepnet.training.data.label_files import Proposal, Wording

FORMATS = ("cvat", "label-studio", "coco", "csv")
LOCAL_FILES = "/data/local-files/?d="
EPILOG = """examples:
  uepnet prelabel new-pictures/ --format cvat --out proposed.xml
  uepnet prelabel new-pictures/ --format label-studio --out tasks.json
  uepnet prelabel new-pictures/ --format csv --out proposed.csv --model runs/gate

The model puts as many points into a picture as it counts people. They are proposals: correct every picture in the
labelling tool before you train on it. CVAT: create a task with the same pictures and a label of the same name, then
"Upload annotations" as CVAT 1.1. Label Studio: import the file; the points are predictions, and submitting a task
makes them annotations. Its labelling form needs <Image name="image" value="$image"/> and
<KeyPointLabels name="label" toName="image">.
Exit codes: 0 done, 1 some pictures could not be read, 2 wrong usage or input."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.options import add_runtime
    from uepnet.commands.shared.sources import overwrite_option

    parser.description = "Write the points that a model proposes, to be corrected in a labelling tool."
    parser.epilog = EPILOG
    parser.add_argument("paths", nargs="+", metavar="PATH", help="pictures, folders or 'patterns'")
    parser.add_argument("--format", required=True, choices=FORMATS, help="format of the file")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="file to write; - for standard output")
    parser.add_argument("--label", default="head", metavar="NAME", help="label of every point (default: head)")
    parser.add_argument(
        "--address",
        default=LOCAL_FILES,
        metavar="URL",
        help=f"label-studio: address in front of each picture's name (default: {LOCAL_FILES})",
    )
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="model directory or training run (default: the bundled model)"
    )
    add_runtime(parser)
    overwrite_option(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary")


def run(args: argparse.Namespace) -> int:
    import sys

    from uepnet.commands.shared.counted import CountedPictures
    from uepnet.commands.shared.terminal import complain
    from uepnet.model.outputs import whole_text
    from uepnet.training.data.label_files import Wording, write

    _check(args)
    pictures = CountedPictures(args, args.quiet)
    wording = Wording(args.label, pictures.model, args.address)
    proposals = list(_proposals(pictures, wording, args.format))
    if not proposals:
        complain("No picture could be read: nothing is written.")
        return 1
    with whole_text(args.out) as file:
        file.write(write(args.format, proposals, wording))
    if not args.quiet:
        people = sum(len(proposal.points) for proposal in proposals)
        print(f"{people:,} points in {len(proposals)} pictures: {args.out}. Correct them first.", file=sys.stderr)
        if pictures.doubtful:
            print(
                f"The model warns about {pictures.doubtful} of these pictures: check their points with special care.",
                file=sys.stderr,
            )
    return 1 if pictures.failed else 0


def _check(args: argparse.Namespace) -> None:
    """What is wrong with inputs and outputs, before the model is loaded."""
    from uepnet.commands.shared.counted import check_pictures
    from uepnet.model.errors import InputError
    from uepnet.model.outputs import Output
    from uepnet.training.data.label_files import SUFFIXES

    if not args.label.strip():
        raise InputError("--label must not be empty.")
    if args.address != LOCAL_FILES and args.format != "label-studio":
        raise InputError("--address has no effect on this format: it works with --format label-studio.")
    check_pictures(args, [Output("--out", args.out, (SUFFIXES[args.format],))])


def _proposals(pictures: "Iterator[CountedPicture]", wording: "Wording", format_name: str) -> "Iterator[Proposal]":
    from urllib.parse import quote

    from uepnet.training.data.label_files import Proposal
    from uepnet.training.peaks import points_of

    for one in pictures:
        count = one.count
        points = points_of(count.count_map, count.cell, count.width, count.height)
        name = quote(one.name) if format_name == "label-studio" else one.name
        yield Proposal(name, (count.width, count.height), points)
