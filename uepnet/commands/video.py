"""`uepnet video`: people in videos, a folder of frames, a camera or a stream."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from uepnet.commands.shared.alerts import add_alerts, alert_rule
from uepnet.commands.shared.options import add_counting, counting_inputs, load_zones, open_backend
from uepnet.commands.shared.video_options import add_frames, add_outputs

if TYPE_CHECKING:
    from uepnet.client.backends import Backend
    from uepnet.commands.shared.progress import Progress
    from uepnet.commands.shared.video_sources import VideoWork
    from uepnet.model.zones import Zone
    from uepnet.video.frames import Choice, Source
    from uepnet.video.pipeline import Job, Summary
    from uepnet.video.recording import Record, Sink

EPILOG = """examples:
  uepnet video station.mp4 --fps 1 --plot counts.png
  uepnet video frames/ --rate 2 --csv counts.csv
  uepnet video 'monday/*.mkv' --fps 1 --csv monday.csv --csv-per minute
  uepnet video gate.mp4 --began '2026-05-01 08:00' --fps 1 --smooth 5 --alert 40
  uepnet video rtsp://camera.local/stream --camera gate --fps 0.2 --server http://localhost:8000
  uepnet video 0 --end 60 --annotate seen.mp4       the first camera of this machine, for a minute
  uepnet video station.mp4 --fps 1 --resume         continue where it was interrupted

Counts are written to a JSONL file, one line per frame, as soon as they are known. What could not be seen is written
as a gap, never as a count of 0.
Exit codes: 0 done, 1 parts of a source could not be read, 2 wrong usage or input, 130 interrupted."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Count the people in video files, a folder of frames, a camera or a live stream."
    parser.epilog = EPILOG
    parser.add_argument(
        "source",
        nargs="+",
        metavar="SOURCE",
        help="videos, 'patterns', a folder of frames, a camera's number, a stream's address, or - for standard input",
    )
    add_frames(parser)
    add_outputs(parser)
    add_alerts(parser)
    add_counting(parser)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from uepnet.commands.shared.progress import Progress
    from uepnet.commands.shared.terminal import complain
    from uepnet.commands.shared.video_sources import check_files, works
    from uepnet.model.errors import InputError

    found = works(args)
    check(args, found)
    check_files(args, found, counting_inputs(args))
    zones = load_zones(args)
    code, recordings = 0, []
    with ExitStack() as stack:
        backend = stack.enter_context(
            closing(open_backend(args, args.annotate is not None, args.camera, found[0].live))
        )
        copies = Path(stack.enter_context(TemporaryDirectory(prefix="uepnet-")))
        for number, work in enumerate(found):
            with Progress(Console(stderr=True), args.quiet) as progress:
                try:
                    done, recording = count_source(args, work, copies / f"{number}.jsonl", zones, backend, progress)
                except InputError as error:
                    if len(found) == 1:
                        raise
                    complain(str(error))
                    done, recording = 1, work.out
            recordings.append(recording)
            code = max(code, done)
            if done in (2, 130):
                break
        finish(args, recordings, zones)
    return code


def count_source(
    args: argparse.Namespace,
    work: "VideoWork",
    copy: Path,
    zones: "Sequence[Zone]",
    backend: "Backend",
    progress: "Progress",
) -> tuple[int, Path]:
    """Count one source to its end: the exit code, and where its records can be read again."""
    from uepnet.commands.shared.terminal import complain
    from uepnet.model.errors import InputError
    from uepnet.video.frames import Choice
    from uepnet.video.pipeline import Job, Summary
    from uepnet.video.smoothed import Smoother
    from uepnet.video.sources import open_source

    choice = Choice(args.every or 1, args.fps, args.start, args.end)
    source = open_source(work.source, choice, args.rate, args.deinterlace, not args.no_retry, complain)
    sink, recording = open_sink(args, work, copy)
    summary = Summary()
    with ExitStack() as stack:
        stack.enter_context(closing(sink))
        annotated = None
        if work.annotate is not None:
            from uepnet.video.annotate import AnnotatedVideo

            annotated = stack.enter_context(closing(AnnotatedVideo(work.annotate, zones, args.resume)))
        if progress.shown:
            progress.start(_expected(source, choice))
        smoother = None if args.smooth is None else Smoother(args.smooth)
        job = Job(source, choice, backend, sink, zones, args.camera, annotated, smoother, args.began)
        began = time.monotonic()
        code = carry_out(job, summary, args, progress)
        elapsed_seconds = time.monotonic() - began
    if work.annotate is not None and annotated is not None:
        _join(work.annotate, annotated.path)
    if code == 0 and not source.live and not summary.counted:
        raise InputError(f"{work.source} has no frame between --start and --end.")
    if not args.quiet:
        tell(summary, elapsed_seconds, work)
    return code, recording


def carry_out(job: "Job", summary: "Summary", args: argparse.Namespace, progress: "Progress") -> int:
    """Run to the end, or to what ends it early; reports it in one sentence and by the exit code."""
    from uepnet.commands.shared.terminal import complain
    from uepnet.model.errors import InferenceError
    from uepnet.video.frames import Damaged

    # `systemctl stop` and `docker stop` end it like Ctrl-C: all files are closed properly.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        job.run(summary, _watch(args, progress), lambda _: progress.advance())
    except KeyboardInterrupt:
        return 0 if job.source.live else 130  # a live source has no other end
    except Damaged as error:
        complain(str(error))
        return 1
    except InferenceError as error:
        complain(f"{error} {summary.counted} counted frames are kept; --resume continues from there.")
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)
    return 1 if summary.gaps and not job.source.live else 0


def _watch(args: argparse.Namespace, progress: "Progress") -> "Callable[[Record], None]":
    """Called with each record: moves the bar and reports alerts on standard error."""
    from uepnet.commands.shared.results import people
    from uepnet.commands.shared.terminal import complain
    from uepnet.video.recording import moment_text
    from uepnet.video.smoothed import RecordWatch

    rule = alert_rule(args)
    limit = None if rule is None else RecordWatch(rule)

    def watch(record: "Record") -> None:
        counts = record.get("count"), record.get("smoothed")
        breach = None if rule is None or limit is None else limit.update(record["timestamp"], *counts)
        if breach is not None and breach.end is None:
            complain(f"alert: {args.alert:g} people reached at {moment_text(record)}.")
        elif breach is not None and rule is not None:
            end = f"below {rule.clear_level:g} people at {moment_text(record)}"
            complain(f"alert: {end}; the peak was {people(breach.peak)} people.")
        progress.advance(f"{people(record['count'])} people" if "count" in record else record["gap"])

    return watch


def check(args: argparse.Namespace, found: "Sequence[VideoWork]") -> None:
    """What can be wrong with the options, found before anything is opened."""
    from uepnet.model.cameras import CAMERA_RULE, camera_name
    from uepnet.model.errors import InputError

    alert_rule(args)
    if args.every is not None and args.fps is not None:
        raise InputError("--every and --fps exclude each other: give one of them.")
    if args.end is not None and args.end <= args.start:
        raise InputError("--end must be later than --start.")
    if args.camera is not None:
        try:
            args.camera = camera_name(args.camera)
        except ValueError:
            raise InputError(f"--camera: a name is {CAMERA_RULE}.") from None
    if args.began is not None and (found[0].live or len(found) > 1):
        raise InputError("--began is for one video file or folder: give each its own command.")
    if args.csv_per != "frame" and args.csv is None:
        raise InputError("--csv-per belongs to --csv: give the name of the table, too.")
    if args.plot is not None:
        import matplotlib  # noqa: F401 - if it is missing, that is told before hours of counting


def open_sink(args: argparse.Namespace, work: "VideoWork", copy: Path) -> "tuple[Sink, Path]":
    """Where records go, and the file in which they can be read again for a table or a picture."""
    from uepnet.model.outputs import is_regular
    from uepnet.video.recording import Recording, Stream

    if is_regular(work.out):
        recording: Recording = Recording(work.out, args.resume, args.overwrite)
        return recording, work.out
    again = Recording(copy) if args.csv is not None or args.plot is not None else None
    return Stream(work.out, again), copy


def finish(args: argparse.Namespace, recordings: Sequence[Path], zones: "Sequence[Zone]") -> None:
    """Make the table and the picture from the counts of all sources."""
    from uepnet.video.recording import read_records
    from uepnet.video.table import write_table

    there = [path for path in recordings if path.is_file()]
    if args.csv is not None and there:
        named = len(there) > 1 and args.camera is None  # rows tell by the file's name where they come from
        records = (
            {"camera": path.stem, **record} if named else record for path in there for record in read_records(path)
        )
        write_table(records, args.csv, [zone.name for zone in zones], args.csv_per)
    if args.plot is not None and there:
        from uepnet.video.plot import draw
        from uepnet.video.series import load_all

        draw(load_all(there), args.plot, alert_rule(args))


def _join(path: Path, last: Path) -> None:
    """Make one video of the parts that a resumed recording wrote."""
    from uepnet.commands.shared.terminal import complain
    from uepnet.video.annotate import join_parts

    if last != path and last.is_file() and not join_parts(path, last):
        complain(f"{path} and {last} could not be joined: both are kept.")


def tell(summary: "Summary", elapsed_seconds: float, work: "VideoWork") -> None:
    from uepnet.commands.shared.results import people
    from uepnet.model.file_names import printable
    from uepnet.model.outputs import descriptor
    from uepnet.video.recording import moment_text
    from uepnet.video.smoothed import best_count

    streamed = descriptor(work.out) is not None
    screen = sys.stderr if streamed else sys.stdout
    speed = summary.fresh / elapsed_seconds if elapsed_seconds else 0.0
    where = "" if streamed else f" in {printable(str(work.out))}"
    print(f"{summary.counted} frames counted{where}, {speed:.1f} per second", file=screen)
    if summary.peak is not None and summary.mean is not None:
        peak = f"{people(best_count(summary.peak) or 0.0)} people at {moment_text(summary.peak)}"
        print(f"peak {peak} (frame {summary.peak['frame']}), mean {people(summary.mean)}", file=screen)
    if summary.warned:
        text, _ = summary.warnings.most_common(1)[0]
        print(f"warnings for {summary.warned} of {summary.counted} frames, such as: {text}", file=screen)
    if summary.gaps or summary.dropped:
        print(f"gaps: {summary.gaps}, dropped frames: {summary.dropped}", file=screen)


def _expected(source: "Source", choice: "Choice") -> int | None:
    """About how many frames will be counted, where that is easy to say."""
    if source.expected is None or choice.fps or choice.start or choice.end:
        return None
    return -(-source.expected // choice.every)
