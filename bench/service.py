"""`uepnet bench service`: the overhead of the service over the bare model, and its fairness.

Five measurements. Throughput: images per second through HTTP with 8 clients, divided by those of a bare loop over the
same files with the same runtime; alternating rounds, median ratio. Busy: how much of the time a device is busy that
only sleeps 5 ms per batch. Host: how many JPEGs of 1920x1080 one core feeds to a device that takes 2 ms per tile,
from the CPU seconds of the service. Fairness: latency of one-tile images while another client sends images of 40 tiles.
Video: throughput of `uepnet video` on a server, divided by that of `uepnet bench load`, also alternating (`video.py`).
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uepnet.bench.load import within

if TYPE_CHECKING:
    import httpx

    from uepnet.model.counter import Counter

QUESTIONS = ("throughput", "busy", "fairness", "host", "video")
EXAMPLES = """examples:
  uepnet bench service                              the bundled model, generated images
  uepnet bench service --images photos/*.jpg --only throughput --rounds 7
  uepnet bench service --json > service.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure the overhead of the service over the bare model: throughput, idle time, fairness, video."
    )
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", type=Path, metavar="DIR", help="model directory (default: the bundled model)")
    parser.add_argument(
        "--images", type=Path, nargs="+", metavar="FILE", help="images to count (default: generated, 1024x768)"
    )
    parser.add_argument(
        "--only", choices=QUESTIONS, nargs="+", default=QUESTIONS, help="measurements to make (default: all)"
    )
    parser.add_argument(
        "--clients", type=within(1, 1024, int), default=8, metavar="N", help="concurrent clients (default: 8)"
    )
    parser.add_argument(
        "--seconds",
        type=within(0.1, 3600),
        default=10.0,
        metavar="SECONDS",
        help="duration of each round (default: 10)",
    )
    parser.add_argument(
        "--rounds",
        type=within(1, 1000, int),
        default=5,
        metavar="N",
        help="rounds of throughput and video (default: 5)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: {machine, rows}")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from uepnet.bench.machine import machine
    from uepnet.bench.video import video

    if "video" in args.only:
        import av  # noqa: F401 - better missing now than after minutes of measuring
    measures: dict[str, Callable[[argparse.Namespace, list[bytes]], dict[str, Any]]] = {
        "throughput": throughput,
        "busy": busy,
        "fairness": fairness,
        "host": host,
        "video": video,
    }
    images = _images(args.images)
    rows: list[dict[str, Any]] = []
    with Console(stderr=True).status("") as status:  # shown only on a terminal: this takes minutes
        for question in args.only:
            status.update(f"measuring {question} ({len(rows) + 1} of {len(args.only)})")
            rows.append({"question": question, **measures[question](args, images)})
    if args.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=2))
        return 0
    for row in rows:
        print(f"{row.pop('question')}:", ", ".join(f"{name} {value}" for name, value in row.items()))
    return 0


def throughput(args: argparse.Namespace, images: list[bytes]) -> dict[str, Any]:
    """Alternating rounds, so that a machine that slows down affects both."""
    from uepnet.bench.served import served
    from uepnet.model.counter import Counter

    counter = Counter(args.model)
    counter.count(images[0])
    pairs = []
    with served(args.model) as url:
        for _ in range(args.rounds):
            bare = _bare(counter, images, args.seconds)
            pairs.append((bare, asyncio.run(closed_loop(url, images, args.clients, args.seconds))["per_second"]))
    return {**compared(pairs, "bare", "service"), "clients": args.clients}


def compared(pairs: Sequence[tuple[float, float]], base: str, other: str) -> dict[str, Any]:
    """Alternating rounds of two rates: the median of each, and the median of their ratios."""
    ratios = [rate / reference for reference, rate in pairs]
    return {
        f"{base}_per_second": round(statistics.median(reference for reference, _ in pairs), 3),
        f"{other}_per_second": round(statistics.median(rate for _, rate in pairs), 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def busy(args: argparse.Namespace, images: list[bytes]) -> dict[str, Any]:
    """Small images, so that the device is the bottleneck at 200 images per second and not the decoder."""
    from uepnet.bench.load import drawn_image
    from uepnet.bench.served import served

    images = [drawn_image("320x240")]
    with served(args.model, sleep_seconds=0.005) as url:
        asyncio.run(closed_loop(url, images, args.clients, min(2.0, args.seconds)))
        before, started = _device_seconds(url), time.perf_counter()
        row = asyncio.run(closed_loop(url, images, args.clients, args.seconds))
        share = (_device_seconds(url) - before) / (time.perf_counter() - started)
    return {"busy_share": round(share, 3), "per_second": row["per_second"], "clients": args.clients}


def fairness(args: argparse.Namespace, images: list[bytes]) -> dict[str, Any]:
    """Latency of one-tile images beside large ones; the limit is the median alone plus the time of three tiles."""
    import numpy as np

    from uepnet.bench.served import served
    from uepnet.model.counter import Counter

    counter = Counter(args.model)
    tile = counter.artifact.tiling.tile
    blank = np.full((1, tile, tile, 3), 128, np.uint8)
    counter.runtime.run(blank)
    times = [_seconds(lambda: counter.runtime.run(blank)) for _ in range(5)]
    tile_seconds = statistics.median(times)
    small, large, tiles = _small_and_large(counter)
    with served(args.model) as url:
        alone = asyncio.run(closed_loop(url, [small], 1, args.seconds))["latency_ms"]
        beside = asyncio.run(_beside(url, small, large, 3 * args.seconds))["latency_ms"]
    return {
        "tile_ms": round(1000 * tile_seconds, 1),
        "large_tiles": tiles,
        "alone_p50_ms": alone["p50"],
        "beside_p50_ms": beside["p50"],
        "beside_p99_ms": beside["p99"],
        "limit_ms": round(3000 * tile_seconds + alone["p50"], 1),
    }


def host(args: argparse.Namespace, images: list[bytes]) -> dict[str, Any]:
    """Decoding, resizing, cutting, stitching, JSON and HTTP: all but the network. Other load hardly matters.

    The CPU seconds are those of the service and of its decoding processes. The device finds a crowd in the lower half
    of every tile (`SleepingRuntime`): otherwise a model that chooses its scales would look once, at a small image.
    """
    from uepnet.bench.load import drawn_image
    from uepnet.bench.processes import usage
    from uepnet.bench.served import service_process

    images = [drawn_image("1920x1080")]
    with service_process(args.model, sleep_seconds=0.002, crowded=True) as (url, pid):
        asyncio.run(closed_loop(url, images, args.clients, min(2.0, args.seconds)))
        before, tiles = usage(pid).cpu_seconds, _metric(url, "uepnet_batch_seconds_count")
        row = asyncio.run(closed_loop(url, images, args.clients, args.seconds))
        spent, tiles = usage(pid).cpu_seconds - before, _metric(url, "uepnet_batch_seconds_count") - tiles
    return {
        "image": "1920x1080",
        "tile_ms": 2,
        "tiles_per_image": round(tiles / max(1, row["ok"]), 1),
        "per_second": row["per_second"],
        "cpu_ms_per_image": round(1000 * spent / max(1, row["ok"]), 2),
        "per_second_and_core": round(row["ok"] / spent, 2) if spent else None,
        "clients": args.clients,
    }


def _bare(counter: "Counter", images: Sequence[bytes], seconds: float) -> float:
    started, number = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        counter.count(images[number % len(images)])
        number += 1
    return number / (time.perf_counter() - started)


async def closed_loop(url: str, images: Sequence[bytes], clients: int, seconds: float) -> dict[str, Any]:
    import httpx

    from uepnet.bench.traffic import closed

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=120) as http:
        return (await closed(_sender(http, images), clients, seconds)).row()


async def _beside(url: str, small: bytes, large: bytes, seconds: float) -> dict[str, Any]:
    """One client sends small images while another sends large ones without end."""
    import httpx

    from uepnet.bench.traffic import closed

    async with httpx.AsyncClient(base_url=url, timeout=600) as http:
        send_large = _sender(http, [large])

        async def keep_sending() -> None:
            while True:
                await send_large()

        other = asyncio.create_task(keep_sending())
        await asyncio.sleep(1)
        row = (await closed(_sender(http, [small]), 1, seconds)).row()
        other.cancel()
        return row


def _sender(http: "httpx.AsyncClient", images: Sequence[bytes]) -> Callable[[], Awaitable[int]]:
    number = 0

    async def send() -> int:
        nonlocal number
        number += 1
        content = images[number % len(images)]
        return (await http.post("/v1/count", content=content, headers={"Content-Type": "image/jpeg"})).status_code

    return send


def _device_seconds(url: str) -> float:
    """How long the device has been at work so far."""
    return _metric(url, "uepnet_batch_seconds_sum")


def _metric(url: str, name: str) -> float:
    import httpx

    lines = httpx.get(f"{url}/metrics", timeout=30).text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def _small_and_large(counter: "Counter") -> tuple[bytes, bytes, int]:
    """An image of exactly one tile, and one of 40 or a few more."""
    from uepnet.bench.load import drawn_image
    from uepnet.model.tiling import windows

    tiling, scale = counter.artifact.tiling, counter.artifact.scale
    stride = tiling.tile - 2 * tiling.halo
    width, height = 7 * stride + tiling.tile, 4 * stride + tiling.tile
    tiles = len(windows(width, height, tiling.tile, tiling.halo, counter.artifact.cell, counter.artifact.multiple)) * (
        2 if counter.artifact.mirror else 1
    )
    sides = [int(side / scale) for side in (tiling.tile, width, height)]
    return drawn_image(f"{sides[0]}x{sides[0]}"), drawn_image(f"{sides[1]}x{sides[2]}"), tiles


def _images(paths: Sequence[Path] | None) -> list[bytes]:
    from uepnet.bench.load import drawn_image, read_body

    return [read_body(path) for path in paths] if paths else [drawn_image("1024x768")]


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
