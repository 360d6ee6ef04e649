"""`uepnet bench growth`: how cost grows with the size of an image, clients, zones and the length of a video.

Costs are CPU seconds of one image or frame: they hardly change when other programs use the machine. They should be flat
over clients and the length of a video, and grow in step with pixels and zones.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uepnet.bench.load import within
from uepnet.bench.plots import check_plot, plot_options, save

if TYPE_CHECKING:
    from uepnet.model.runtime import Runtime

# The question, what its horizontal axis shows, and what its vertical one.
QUESTIONS = {
    "pixels": ("megapixels of an image", "CPU seconds per image"),
    "clients": ("clients at the same time", "CPU seconds per image"),
    "zones": ("zones", "CPU ms per image, no network"),
    "video": ("frames of a video", "CPU ms per frame, no network"),
}
MOST_ZONES = 64  # of an image, as `model.zones` allows; importing that would slow every command's start
EXAMPLES = """examples:
  uepnet bench growth --plot growth.png                    all four, drawn images
  uepnet bench growth --only pixels --images photos/*.jpg  mosaics of photographs: people in all of the image
  uepnet bench growth --only clients --seconds 10 --json > clients.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure how cost grows with image size, concurrency, zones and video length."
    parser.epilog = EXAMPLES
    parser.add_argument("--model", type=Path, metavar="DIR", help="model directory (default: the bundled model)")
    parser.add_argument("--images", type=Path, nargs="+", metavar="FILE", help="photographs (default: drawn images)")
    parser.add_argument(
        "--only", choices=list(QUESTIONS), nargs="+", default=list(QUESTIONS), help="what to measure (default: all)"
    )
    for name, kind, low, high, default, text in (
        ("megapixels", float, 0.01, 50, [0.3, 1, 3, 6, 12, 24, 50], "sizes of images"),
        ("clients", int, 1, 1024, [1, 2, 4, 8, 16, 32, 64], "clients at the same time"),
        ("zones", int, 0, MOST_ZONES, [0, 1, 4, 16, MOST_ZONES], "numbers of zones"),
        ("frames", int, 1, 100_000, [50, 200, 800], "lengths of videos"),
    ):
        shown = " ".join(f"{value:g}" for value in default)
        parser.add_argument(
            f"--{name}",
            type=within(low, high, kind),
            nargs="+",
            default=default,
            metavar="N",
            help=f"{text} (default: {shown})",
        )
    parser.add_argument(
        "--seconds",
        type=within(0.1, 600),
        default=2.5,
        metavar="SECONDS",
        help="time of each row of clients (default: 2.5)",
    )
    parser.add_argument(
        "--threads", type=within(0, 1024, int), default=0, metavar="N", help="CPU threads; 0 for one per core"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: {machine, rows}")
    plot_options(parser, "all questions that were measured")


def run(args: argparse.Namespace) -> int:
    from uepnet.bench.machine import machine

    check_plot(args)
    measures: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
        "pixels": pixels,
        "clients": clients,
        "zones": zones,
        "video": video,
    }
    rows = []
    for question in args.only:
        for row in measures[question](args):
            rows.append({"question": question, **row})
            if not args.json:  # at once: all of it takes minutes
                print(question, *(f"{name} {value:g}" for name, value in row.items()), sep="  ", flush=True)
    if args.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=2))
    if args.plot is not None:
        plot(rows, args.plot)
    return 0


def pixels(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """From JPEG to count; the first image of a size allocates, the second is measured."""
    from uepnet.bench.pictures import pictures
    from uepnet.bench.processes import usage
    from uepnet.bench.video import as_jpeg
    from uepnet.model.count import count_image
    from uepnet.model.image import load_image

    runtime, picture = _runtime(args), pictures(args.images)
    for megapixels in sorted(args.megapixels):
        width = round(math.sqrt(megapixels * 1e6 * 4 / 3))
        content = as_jpeg(picture(width, int(megapixels * 1e6 / width)))
        seen = 0

        def look(tiles: Any) -> Any:
            nonlocal seen
            for tile in tiles:
                seen += tile.shape[0] * tile.shape[1]
                yield from runtime.run([tile])

        def count(content: bytes = content, look: Any = look) -> None:
            count_image(load_image(content), runtime.artifact, look)

        count()
        seen = 0
        spent = _cpu_seconds(count)
        peak = usage(_own_pid()).peak_mib
        yield {"x": megapixels, "cost": spent, "megapixels_seen": seen / 1e6, "peak_mib": peak}


def clients(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A service with the real model: what it spends for an image, its decoding processes included."""
    import asyncio

    from uepnet.bench.load import drawn_image, read_body
    from uepnet.bench.processes import usage
    from uepnet.bench.served import service_process
    from uepnet.bench.service import closed_loop

    images = [read_body(path) for path in args.images] if args.images else [drawn_image("1024x768")]
    with service_process(args.model, max_requests=max(args.clients), threads=args.threads) as (url, pid):
        asyncio.run(closed_loop(url, images, 1, 1.0))
        for number in sorted(args.clients):
            before = usage(pid).cpu_seconds
            row = asyncio.run(closed_loop(url, images, number, args.seconds))
            after = usage(pid)
            cost = (after.cpu_seconds - before) / max(1, row["ok"])
            yield {"x": number, "cost": cost, "answered": row["ok"], "peak_mib": after.peak_mib}


def zones(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """1024x768, a device that takes no time: what is left is the host's work."""
    from uepnet.bench.pictures import pictures
    from uepnet.model.count import count_image
    from uepnet.model.zones import Zone

    artifact, run_tiles = _no_network(args)
    image = pictures(args.images)(1024, 768)
    for number in sorted(args.zones):
        corners = [(index % 10 / 10, index // 10 % 10 / 10) for index in range(number)]
        named = [
            Zone(name=str(index), polygon=((x, y), (x + 0.09, y), (x + 0.05, y + 0.09)), units="fractions")
            for index, (x, y) in enumerate(corners)
        ]
        spent = [_cpu_seconds(lambda named=named: count_image(image, artifact, run_tiles, named)) for _ in range(7)]  # type: ignore[misc]
        yield {"x": number, "cost": 1000 * statistics.median(spent)}


def video(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A video of 320x240 from file to records, a device that takes no time."""
    import tempfile

    from uepnet.bench.pictures import pictures
    from uepnet.bench.processes import usage
    from uepnet.bench.video import write_video
    from uepnet.client.backends import InProcess
    from uepnet.video.frames import Choice, VideoFile
    from uepnet.video.pipeline import Job, Summary
    from uepnet.video.recording import Recording

    backend = InProcess(*_no_network(args))
    frame = pictures(args.images)(320, 240)
    with tempfile.TemporaryDirectory() as folder:
        for number in sorted(args.frames):
            path = Path(folder) / f"{number}.mp4"
            write_video(path, [frame], number)
            recording, summary = Recording(path.with_suffix(".jsonl")), Summary()
            job = Job(VideoFile(str(path)), Choice(), backend, recording)
            spent = _cpu_seconds(lambda job=job, summary=summary: job.run(summary))  # type: ignore[misc]
            recording.close()
            yield {"x": number, "cost": 1000 * spent / summary.counted, "peak_mib": usage(_own_pid()).peak_mib}


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel for each question; a dotted line through the origin in the one whose cost should grow in step."""
    from matplotlib.figure import Figure

    asked = list(dict.fromkeys(row["question"] for row in rows))
    across = min(2, len(asked))
    down = -(-len(asked) // across)
    figure = Figure(figsize=(4.8 * across, 3.4 * down), layout="constrained")
    for panel, question in zip(figure.subplots(down, across, squeeze=False).flat, asked, strict=False):
        own = [row for row in rows if row["question"] == question]
        x, cost = [row["x"] for row in own], [row["cost"] for row in own]
        panel.plot(x, cost, marker="o", label="measured")
        if question == "pixels":
            panel.plot([0, x[-1]], [0, cost[-1]], linestyle=":", label="in step with the pixels")
            panel.legend(loc="upper left")
        panel.set(title=question, xlabel=QUESTIONS[question][0], ylabel=QUESTIONS[question][1])
        panel.set(xlim=(0, 1.05 * max(*x, 1)), ylim=(0, 1.15 * max(cost)))
    save(figure, path)


def _runtime(args: argparse.Namespace) -> "Runtime":
    from uepnet.model.runtime import Runtime

    return Runtime(args.model, threads=args.threads)


def _no_network(args: argparse.Namespace) -> tuple[Any, Any]:
    """An artifact, and a device that finds crowds in no time."""
    from uepnet.bench.served import SleepingRuntime
    from uepnet.model.artifact import Artifact
    from uepnet.model.runtime import BUNDLED

    artifact = Artifact.load(args.model or BUNDLED)
    return artifact, SleepingRuntime(artifact, 0.0, crowded=True).run_tiles


def _cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _own_pid() -> int:
    import os

    return os.getpid()
