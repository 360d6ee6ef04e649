"""`uepnet video`: people in a video, a folder of frames, a camera or a stream."""

import argparse
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from uepnet.commands.options import add_counting, load_zones, open_backend, positive_number

if TYPE_CHECKING:
    from uepnet.model.zones import Zone
    from uepnet.service.annotate import AnnotatedVideo
    from uepnet.service.frames import Choice, Source
    from uepnet.service.recording import Record, Sink
    from uepnet.service.video import Job, Summary

EPILOG = """examples:
  uepnet video station.mp4 --fps 1 --plot counts.png
  uepnet video frames/ --rate 2 --csv counts.csv
  uepnet video rtsp://camera.local/stream --camera gate --fps 0.2 --server http://localhost:8000
  uepnet video 0 --end 60 --annotate seen.mp4       the first camera of this machine, for a minute
  uepnet video station.mp4 --fps 1 --resume         go on where it was interrupted

Counts go to a JSONL file, a line a frame, as they come. What could not be seen leaves a gap, never a zero.
Exit code: 0 done, 1 parts of the source could not be read, 2 wrong usage or input, 130 interrupted."""

# An http:// address that ends so is a file; any other is a live stream.
FILE_SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".wmv", ".flv")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Count the people in a video file, a folder of frames, a camera or a live stream."
    parser.epilog = EPILOG
    parser.add_argument("source", metavar="SOURCE", help="a video, a folder, a camera's number or a stream's address")
    which = parser.add_argument_group("which frames")
    which.add_argument("--every", type=positive_number, metavar="N", help="every N-th frame (default: all)")
    which.add_argument("--fps", type=rate, metavar="F", help="at most F frames a second of the video, 0.2 for each 5 s")
    which.add_argument("--start", type=moment, default=Fraction(0), metavar="TIME", help="seconds or [H:]MM:SS")
    which.add_argument("--end", type=moment, metavar="TIME", help="count until before this moment")
    which.add_argument(
        "--rate", type=rate, default=Fraction(25), metavar="F", help="frames a second in a folder (default: 25)"
    )
    out = parser.add_argument_group("what is written")
    out.add_argument(
        "--out", metavar="FILE", help="the counts (default: SOURCE's name with .jsonl, here; - for standard output)"
    )
    out.add_argument("--camera", metavar="NAME", help="the camera's name in all that is written, and on the server")
    out.add_argument("--csv", type=Path, metavar="FILE", help="a table for spreadsheets, written at the end")
    out.add_argument("--annotate", type=Path, metavar="FILE.mp4", help="a video with heat map, zones and counts")
    out.add_argument("--plot", type=Path, metavar="FILE.png", help="the counts over time, drawn at the end")
    again = out.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on after the last frame in the counts")
    again.add_argument("--overwrite", action="store_true", help="write over counts that are there")
    out.add_argument("--quiet", action="store_true", help="no progress, no summary")
    add_counting(parser)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from uepnet.commands.progress import Progress
    from uepnet.service.frames import Choice
    from uepnet.service.video import Job, Summary

    check(args)
    zones = load_zones(args)
    choice = Choice(args.every or 1, args.fps, args.start, args.end)
    source = open_source(args.source, choice, args.rate)
    summary = Summary()
    with ExitStack() as stack:
        backend = stack.enter_context(closing(open_backend(args, args.annotate is not None, args.camera)))
        sink = stack.enter_context(closing(open_sink(args)))
        annotated = open_annotated(args, zones)
        if annotated is not None:
            stack.enter_context(closing(annotated))
        progress = stack.enter_context(Progress(Console(stderr=True), args.quiet))
        if progress.shown:
            progress.start(_expected(source, choice))
        job = Job(source, choice, backend, sink, zones, args.camera, annotated)
        began = time.monotonic()
        code = carry_out(job, summary, lambda record: progress.advance(_shown(record)))
        elapsed_seconds = time.monotonic() - began
    if code == 0 and not source.live and not summary.counted:
        print(f"uepnet: {args.source} has no frame where --start and --end say.", file=sys.stderr)
        return 2
    finish(args, zones)
    if not args.quiet:
        tell(summary, elapsed_seconds, args)
    return code


def carry_out(job: "Job", summary: "Summary", watch: "Callable[[Record], None]") -> int:
    """Run to the end, or to what ends it early; says it in one sentence and with the exit code."""
    from uepnet.model.errors import InferenceError
    from uepnet.service.frames import Damaged

    # `systemctl stop` and `docker stop` are as good as Ctrl-C: all files are closed properly.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        job.run(summary, watch)
    except KeyboardInterrupt:
        return 0 if job.source.live else 130  # a live source has no other end
    except Damaged as error:
        print(f"uepnet: {error}", file=sys.stderr)
        return 1
    except InferenceError as error:
        kept = f"{summary.counted} counted frames are kept, and --resume goes on from there"
        print(f"uepnet: {error} ({kept}.)", file=sys.stderr)
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)
    return 1 if summary.gaps and not job.source.live else 0


def check(args: argparse.Namespace) -> None:
    """What can be wrong before anything is opened."""
    from uepnet.model.errors import InputError
    from uepnet.service.schemas import CAMERA_PATTERN

    try:
        urlsplit(args.source if "://" in args.source else "")
    except ValueError:
        raise InputError("SOURCE is no address (it has a bracket too many or too few).") from None
    if args.every is not None and args.fps is not None:
        raise InputError("--every and --fps exclude each other: give one of them.")
    if args.end is not None and args.end <= args.start:
        raise InputError("--end must lie after --start.")
    if args.camera is not None and not re.match(CAMERA_PATTERN, args.camera):
        raise InputError("--camera: a name has up to 64 letters, digits, blanks, dots, dashes or underscores.")
    if args.out == "-" and (args.csv or args.plot or args.resume):
        raise InputError("--csv, --plot and --resume need the counts in a file: give --out a name.")
    for name, path in (("--csv", args.csv), ("--plot", args.plot)):
        if path is not None and not path.parent.is_dir():  # better told now than after an hour of counting
            raise InputError(f"{name} {path}: there is no folder {path.parent}.")
    if args.annotate is not None and args.annotate.suffix.lower() != ".mp4":
        raise InputError(f"--annotate {args.annotate}: the video's name must end in .mp4.")
    if args.plot is not None:
        import matplotlib  # noqa: F401 - better missing now than after an hour of counting

        if args.plot.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise InputError(f"--plot {args.plot}: the picture's name must end in .png, .svg or .pdf.")


def open_source(name: str, choice: "Choice", rate: Fraction) -> "Source":
    """What the name means: a number is a camera, an address a stream, all else a file or a folder."""
    from uepnet.service.frames import Folder, VideoFile
    from uepnet.service.live import Live

    if name.isdecimal() or name.startswith("/dev/video"):
        return Live(f"/dev/video{name}" if name.isdecimal() else name, choice, format="v4l2")
    if "://" in name and not name.partition("?")[0].lower().endswith(FILE_SUFFIXES):
        return Live(name, choice)
    if Path(name).is_dir():
        return Folder(Path(name), rate)
    return VideoFile(name)


def out_path(args: argparse.Namespace) -> Path:
    """Where the counts go: where --out says, or a file here called after the source (a live one: its camera)."""
    if args.out is not None:
        return Path(args.out)
    if "://" in args.source:
        name = args.camera or urlsplit(args.source).hostname or "stream"
    elif args.source.isdecimal():
        name = args.camera or f"camera-{args.source}"
    else:
        name = Path(args.source).resolve().stem
    return Path(f"{name}.jsonl")


def open_sink(args: argparse.Namespace) -> "Sink":
    from uepnet.service.recording import Recording, StandardOutput

    return StandardOutput() if args.out == "-" else Recording(out_path(args), args.resume, args.overwrite)


def open_annotated(args: argparse.Namespace, zones: "Sequence[Zone]") -> "AnnotatedVideo | None":
    if args.annotate is None:
        return None
    from uepnet.service.annotate import AnnotatedVideo, next_part

    return AnnotatedVideo(next_part(args.annotate) if args.resume else args.annotate, zones)


def finish(args: argparse.Namespace, zones: "Sequence[Zone]") -> None:
    """Make from the counts what can only be made at the end."""
    from uepnet.service.recording import read_records, write_csv

    path = out_path(args)
    if args.csv is not None and path.exists():
        write_csv(read_records(path), args.csv, [zone.name for zone in zones])
    if args.plot is not None and path.exists():
        from uepnet.service.plot import draw, load_series

        draw(load_series(path), args.plot)


def tell(summary: "Summary", elapsed_seconds: float, args: argparse.Namespace) -> None:
    from uepnet.commands.results import people
    from uepnet.service.recording import moment_text

    screen = sys.stderr if args.out == "-" else sys.stdout
    speed = summary.fresh / elapsed_seconds if elapsed_seconds else 0.0
    where = "" if args.out == "-" else f" in {out_path(args)}"
    print(f"{summary.counted} frames counted{where}, {speed:.1f} a second", file=screen)
    if summary.peak is not None and summary.mean is not None:
        peak = f"{people(summary.peak['count'])} people at {moment_text(summary.peak)}"
        print(f"peak {peak} (frame {summary.peak['frame']}), mean {people(summary.mean)}", file=screen)
    if summary.gaps or summary.dropped:
        print(f"gaps: {summary.gaps}, dropped frames: {summary.dropped}", file=screen)


def _expected(source: "Source", choice: "Choice") -> int | None:
    """About how many frames will be counted, where that is easily said."""
    if source.expected is None or choice.fps or choice.start or choice.end:
        return None
    return -(-source.expected // choice.every)


def _shown(record: "Record") -> str:
    from uepnet.commands.results import people

    return f"{people(record['count'])} people" if "count" in record else record["gap"]


def rate(text: str) -> Fraction:
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of frames a second, such as 25, 0.5 or 30000/1001")
    return value


def moment(text: str) -> Fraction:
    match = re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time, such as 90, 1:30 or 0:01:30.5")
    hours, minutes, seconds = (Fraction(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds
