"""`uepnet suggest`: the pictures whose labels would teach the model most."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uepnet.commands.shared.counted import CountedPictures
    from uepnet.training.suggest import Candidate

EPILOG = """examples:
  uepnet suggest recordings/ --out next.html
  uepnet suggest recordings/ --model runs/gate --number 30 --copy to-label
  uepnet suggest recordings/ --json | jq -r '.[].path'

Pictures that look unlike the training pictures come first, then those with the widest range. Near copies of a chosen
picture are passed over, and so are pictures that the model was trained on. With --copy the chosen pictures are copied
into a new folder, ready for `uepnet prelabel` and a labelling tool.
Exit codes: 0 done, 1 some pictures could not be read, 2 wrong usage or input."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.options import add_runtime, positive_number
    from uepnet.commands.shared.sources import overwrite_option

    parser.description = "Find the pictures whose labels would teach the model most."
    parser.epilog = EPILOG
    parser.add_argument("paths", nargs="+", metavar="PATH", help="pictures, folders or 'patterns'")
    parser.add_argument("--out", type=Path, metavar="HTML", help="write a gallery of the chosen pictures, as one file")
    parser.add_argument(
        "--copy", type=Path, metavar="DIR", help="copy the chosen pictures into this folder; it must be new or empty"
    )
    parser.add_argument(
        "--number", type=positive_number, default=20, metavar="N", help="maximum number of pictures (default: 20)"
    )
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="model directory or training run (default: the bundled model)"
    )
    add_runtime(parser)
    overwrite_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress and no notes")


def run(args: argparse.Namespace) -> int:
    import json
    import sys

    from uepnet.commands.shared.counted import CountedPictures
    from uepnet.model.outputs import whole_text
    from uepnet.training.suggest import choose, gallery

    _check(args)
    pictures = CountedPictures(args, args.quiet)
    candidates = _candidates(pictures)
    chosen = choose(candidates, args.number, pictures.artifact)
    if args.out is not None:
        with whole_text(args.out) as file:
            file.write(gallery(chosen, pictures.model, pictures.again))
    if args.copy is not None:
        _copy(chosen, args.copy)
    if args.json:
        print(json.dumps([one.as_json() for one in chosen]))
    else:
        _show(chosen)
    if not args.quiet:
        if pictures.skipped:
            print(f"Pictures left out because the model was trained on them: {pictures.skipped}.", file=sys.stderr)
        if len(chosen) < min(args.number, len(candidates)):
            print(f"The other {len(candidates) - len(chosen)} pictures are near copies of these.", file=sys.stderr)
    return 1 if pictures.failed else 0


def _check(args: argparse.Namespace) -> None:
    from uepnet.commands.shared.counted import check_pictures
    from uepnet.model.errors import InputError
    from uepnet.model.outputs import Output

    check_pictures(args, [] if args.out is None else [Output("--out", args.out, (".html",))])
    if args.copy is None:
        return
    if args.copy.exists() and (not args.copy.is_dir() or any(args.copy.iterdir())):
        raise InputError(f"--copy {args.copy} exists and is not empty: give a new folder.")
    for argument in map(Path, args.paths):
        if argument.is_dir() and args.copy.resolve().is_relative_to(argument.resolve()):
            raise InputError(f"--copy {args.copy} lies in {argument}, which is searched: give a folder outside it.")


def _candidates(pictures: "CountedPictures") -> "list[Candidate]":
    """The pictures to choose from: those that the model was not trained on."""
    from uepnet.training.data.seen import digest, seen_by
    from uepnet.training.suggest import Candidate

    if seen := seen_by(pictures.artifact):
        pictures.skip = lambda path: path.is_file() and digest(path) in seen
    return [Candidate.of(one.name, one.path, one.image, one.count) for one in pictures]


def _copy(chosen: "list[Candidate]", folder: Path) -> None:
    import shutil

    from uepnet.model.errors import OutputError

    try:
        for one in chosen:
            place = folder / one.name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(one.path, place)
    except OSError as error:
        raise OutputError(f"The pictures cannot be copied to {folder}: {error.strerror}.") from None


def _show(chosen: "list[Candidate]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from uepnet.model.file_names import printable
    from uepnet.training.suggest import counted

    table = Table("", "picture", "people (range)", "why", box=None, pad_edge=False)
    for place, one in enumerate(chosen, start=1):
        table.add_row(str(place), Text(printable(str(one.path))), counted(one), one.reason)
    console = Console()
    (console if console.is_terminal else Console(width=10_000)).print(table)
