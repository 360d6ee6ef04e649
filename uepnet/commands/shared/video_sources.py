"""Which videos a command line means, and the files that are written for each of them."""

import argparse
import glob
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from uepnet.model.errors import InputError
from uepnet.model.file_names import natural
from uepnet.model.outputs import Output, check_outputs, is_regular

PICTURE_FORMATS = (".png", ".svg", ".pdf")
STANDARD_INPUT = "-"
PLAYLIST_MARKS, MAX_PLAYLIST_BYTES = (b"#EXTM3U", b"ffconcat"), 1 << 24
TABLE_MARK, PICTURE_MARK = b"camera,", b"uepnet plot"


@dataclass(frozen=True, slots=True)
class VideoWork:
    """One source and its files."""

    source: str
    out: Path  # - for standard output
    annotate: Path | None

    @property
    def live(self) -> bool:
        return is_live(self.source)


def is_live(source: str) -> bool:
    from uepnet.video.sources import is_live

    return is_live(source)


def works(args: argparse.Namespace) -> list[VideoWork]:
    """The sources that the arguments name, with patterns expanded, and the files of each; nothing is opened."""
    sources = [source for argument in args.source for source in _expanded(argument)]
    if len(sources) > 1 and any(is_live(source) for source in sources):
        raise InputError("A live source is counted alone: start one command for each.")
    if sources.count(STANDARD_INPUT) > 1:
        raise InputError("Standard input (-) can be read only once.")
    many = len(sources) > 1
    if many and args.out is not None and not Path(args.out).is_dir():
        raise InputError(f"--out {args.out}: for several sources it must be a folder that exists.")
    if many and args.annotate is not None and not args.annotate.is_dir():
        raise InputError(f"--annotate {args.annotate}: for several sources it must be a folder that exists.")
    used: set[str] = set()
    return [_work(source, args, many, used) for source in sources]


def _work(source: str, args: argparse.Namespace, many: bool, used: set[str]) -> VideoWork:
    stem = name = _name(source, None if many else args.camera)
    number = 1
    while name in used:  # a.mp4 of another folder
        number += 1
        name = f"{stem}-{number}"
    used.add(name)
    out = Path(f"{name}.jsonl") if args.out is None else Path(args.out)
    if args.out is not None and str(out) != "-" and out.is_dir():
        out = out / f"{name}.jsonl"
    annotate: Path | None = args.annotate
    if annotate is not None and annotate.is_dir():
        annotate = annotate / f"{name}.mp4"
    return VideoWork(source, out, annotate)


def check_files(args: argparse.Namespace, found: Sequence[VideoWork], read: Sequence[Path]) -> None:
    """Check all outputs against all inputs and each other, before anything is opened."""
    outputs = list(_outputs(args, found))
    sources = [work.source for work in found if not work.live]
    listed = [path for source in sources for path in _listed_in(source)]
    check_outputs(outputs, [*sources, *listed, *read], args.overwrite)


def _listed_in(source: str) -> Iterator[Path]:
    """The files that a playlist names: they are read, too."""
    try:
        if not Path(source).is_file():  # opening a named pipe would wait for somebody who writes to it
            return
        with Path(source).open("rb") as file:
            text = file.read(MAX_PLAYLIST_BYTES) if file.read(8).startswith(PLAYLIST_MARKS) else b""
    except (OSError, ValueError):
        return
    for line in text.decode(errors="surrogateescape").splitlines():
        for name in (line, *re.split(r"[\s\"'=,]+", line)):
            with suppress(OSError, ValueError):
                path = Path(source).parent / name
                if path.is_file():
                    yield path


def _outputs(args: argparse.Namespace, found: Sequence[VideoWork]) -> Iterator[Output]:
    for work in found:
        if args.resume and not is_regular(work.out):
            raise InputError(f"--resume needs the counts in a file, not in {work.out}: give --out a name.")
        advice = "--resume continues it, --overwrite replaces it"
        yield Output("--out", work.out, resumed=args.resume, advice=advice)
        if work.annotate is not None:
            yield Output("--annotate", work.annotate, (".mp4",), resumed=args.resume and _is_annotated(work.annotate))
    # When a recording is resumed, its table and picture are made anew; nothing else is replaced.
    if args.csv is not None:
        yield Output("--csv", args.csv, resumed=args.resume and _holds(args.csv, TABLE_MARK))
    if args.plot is not None:
        yield Output("--plot", args.plot, PICTURE_FORMATS, resumed=args.resume and _holds(args.plot, PICTURE_MARK))


def _is_annotated(path: Path) -> bool:
    from uepnet.video.annotate import is_annotated

    return is_annotated(path)


def _holds(path: Path, mark: bytes) -> bool:
    """Whether a file is one that this command wrote, by what stands in its first bytes."""
    with suppress(OSError), path.open("rb") as file:
        return path.is_file() and mark in file.read(4096)
    return False


def _expanded(argument: str) -> list[str]:
    """A pattern's matches in natural order; anything else as it is."""
    from uepnet.video.addresses import is_address, without_file_scheme

    argument = without_file_scheme(argument)
    if not argument:
        raise InputError("SOURCE is empty: give the name of a video.")
    if argument == STANDARD_INPUT or is_address(argument):
        _check_address(argument)
        return [argument]
    with suppress(OSError, ValueError):
        mode = Path(argument).stat().st_mode
        if stat.S_ISCHR(mode) and not argument.startswith("/dev/video"):
            raise InputError(f"{argument} is a device, not a video.")
        return [argument]
    if not glob.has_magic(argument):
        return [argument]
    matches = sorted(glob.glob(argument, recursive=True), key=natural)  # noqa: PTH207 - keeps names as written
    if not matches:
        raise InputError(f"No file matches {argument}.")
    return matches


def _check_address(argument: str) -> None:
    try:
        urlsplit(argument)
    except ValueError:
        raise InputError("SOURCE is not a valid address: it has an unmatched bracket.") from None


def _name(source: str, camera: str | None) -> str:
    """What the files of a source are named after: the file itself; of a live source its camera."""
    from uepnet.video.addresses import is_address

    if source == STANDARD_INPUT:
        return "standard-input"
    if is_address(source) and not is_live(source):
        return Path(urlsplit(source).path).stem or "video"
    if is_address(source):
        return camera or urlsplit(source).hostname or "stream"
    if source.isdecimal():
        return camera or f"camera-{source}"
    try:
        return Path(source).resolve().stem
    except (OSError, RuntimeError):  # a loop of links: it is told when the source is opened
        return Path(source).stem
