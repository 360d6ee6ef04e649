"""`uepnet bench bulk`: counting a folder with Ray on this machine, against one process that counts the same images."""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uepnet.bench.load import within

EXAMPLES = """examples:
  uepnet bench bulk --images photos/*.jpg                   about two minutes on two cores
  uepnet bench bulk --images photos/*.jpg --seconds 10 --workers 4 --json

One process counts for --seconds with one thread per core. Then Ray, on 127.0.0.1 alone, counts as many images as that
process would count in the same time. `start_seconds` is the time until Ray has written its first part, which holds
--part images; the speed is measured from there to the end. Needs the extra `deploy`."""
START_SECONDS = 120.0  # at most, of Ray and its processes


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compare counting a folder with Ray on this machine with one process."
    parser.epilog = EXAMPLES
    parser.add_argument("--images", type=Path, nargs="+", required=True, metavar="FILE", help="images, used in turn")
    parser.add_argument("--model", type=Path, metavar="DIR", help="model directory (default: the bundled model)")
    parser.add_argument(
        "--seconds",
        type=within(0.1, 600),
        default=40.0,
        metavar="SECONDS",
        help="time of each of the two (default: 40)",
    )
    parser.add_argument(
        "--workers", type=within(1, 1024, int), metavar="N", help="Ray's processes, of one thread (default: the cores)"
    )
    parser.add_argument("--part", type=within(1, 1024, int), default=8, metavar="N", help="size of a part (default: 8)")
    parser.add_argument("--json", action="store_true", help="print JSON: {machine, rows}")


def run(args: argparse.Namespace) -> int:
    from uepnet.bench.machine import machine
    from uepnet.model.device import available_cores

    workers = args.workers or available_cores()
    rows = [one_process(args)]
    number = max(math.ceil(rows[0]["images_per_second"] * args.seconds), (workers + 1) * args.part)
    with tempfile.TemporaryDirectory(prefix="uepnet-bulk-") as folder:
        copy(args.images, number, Path(folder) / "images")
        # Twice the time that one process needs, and the start: a hang ends with an error.
        rows.append(ray(args, workers, number, Path(folder), START_SECONDS + 2 * number / rows[0]["images_per_second"]))
    for row in rows:
        row["times_one_process"] = row["images_per_second"] / rows[0]["images_per_second"]
    if args.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=2))
        return 0
    for row in rows:
        print(
            *(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items())
        )
    return 0


def one_process(args: argparse.Namespace) -> dict[str, Any]:
    """`Counter` in this process, with a thread per core; the first image is not measured."""
    from uepnet.model.counter import Counter

    counter = Counter(args.model)
    counter.count(args.images[0])
    began = time.monotonic()
    for images, path in enumerate(itertools.cycle(args.images), 1):
        counter.count(path)
        seconds = time.monotonic() - began
        if seconds >= args.seconds:
            return {"what": "one process", "images": images, "seconds": seconds, "images_per_second": images / seconds}
    raise AssertionError("there is an image")


def copy(images: Sequence[Path], number: int, folder: Path) -> None:
    """So many files: Ray counts each file of a folder once."""
    folder.mkdir()
    for index, path in zip(range(number), itertools.cycle(images), strict=False):
        (folder / f"{index:06}{path.suffix}").write_bytes(path.read_bytes())


def ray(args: argparse.Namespace, workers: int, number: int, folder: Path, most_seconds: float) -> dict[str, Any]:
    """`deploy/ray_count.py`, as somebody would run it; it starts a cluster on loopback."""
    from uepnet.model.errors import InputError

    command = [sys.executable, "-m", "uepnet.deploy.ray_count", str(folder / "images"), "--out", str(folder / "out")]
    command += ["--part", str(args.part), "--workers", str(workers), "--threads", "1"]
    if args.model is not None:
        command += ["--model", str(args.model)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    began = time.time()  # the clock of the files
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=most_seconds)
    except subprocess.TimeoutExpired:
        raise InputError(f"Ray has not counted {number} images in {most_seconds:.0f} seconds.") from None
    if done.returncode:
        raise InputError(f"Ray did not count all images: {done.stderr.strip().rpartition(chr(10))[2]}")
    finished, counted = list[tuple[float, int]](), 0
    for part in sorted((folder / "out").glob("part-*.csv"), key=lambda part: part.stat().st_mtime_ns):
        counted += len(part.read_text().splitlines()) - 1
        finished.append((part.stat().st_mtime - began, counted))
    return {"what": f"ray, {workers} processes", "images": counted, **speed(finished)}


def speed(finished: Sequence[tuple[float, int]]) -> dict[str, float]:
    """(seconds, images counted) after each part -> from the first part to the last."""
    (first, before), (last, after) = finished[0], finished[-1]
    return {"seconds": last, "images_per_second": (after - before) / (last - first), "start_seconds": first}
