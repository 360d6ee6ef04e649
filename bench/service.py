"""`uepnet bench service`: what the service costs on top of the model, and how fair it is.

Four questions. Throughput: images a second through HTTP with 8 clients, against a bare loop over the same files
with the same runtime, in turns, as the median ratio of several rounds. Busy: the share of time that a device is at
work which only sleeps 5 ms a batch. Fairness: how long one-tile images take while another client sends 40-tile ones.
Video: what `uepnet video` gets out of a server against what `uepnet bench load` does, also in turns (`video.py`).
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

    from uepnet.model.count import Counter

QUESTIONS = ("throughput", "busy", "fairness", "video")
EXAMPLES = """examples:
  uepnet bench service                              the bundled model, drawn images
  uepnet bench service --images photos/*.jpg --only throughput --rounds 7
  uepnet bench service --json > service.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure what the service adds to the bare model: throughput, idle time, fairness, video."
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", type=Path, metavar="DIR", help="a model directory; without it the bundled model")
    parser.add_argument("--images", type=Path, nargs="+", metavar="FILE", help="without it drawn ones of 1024x768")
    parser.add_argument("--only", choices=QUESTIONS, nargs="+", default=QUESTIONS, help="which questions (all)")
    parser.add_argument("--clients", type=within(1, 1024, int), default=8, help="at the same time (default: 8)")
    parser.add_argument("--seconds", type=within(0.1, 3600), default=10.0, help="of each round (default: 10)")
    parser.add_argument(
        "--rounds", type=within(1, 1000, int), default=5, help="of the throughput and the video (default: 5)"
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
        "video": video,
    }
    images = _images(args.images)
    rows: list[dict[str, Any]] = []
    with Console(stderr=True).status("") as status:  # shown on a terminal alone: this takes minutes
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
    """Rounds in turns, so that a machine that slows down slows both."""
    from uepnet.bench.served import served
    from uepnet.model.count import Counter

    counter = Counter(args.model)
    counter.count(images[0])
    pairs = []
    with served(args.model) as url:
        for _ in range(args.rounds):
            bare = _bare(counter, images, args.seconds)
            pairs.append((bare, asyncio.run(_closed(url, images, args.clients, args.seconds))["per_second"]))
    return {**compared(pairs, "bare", "service"), "clients": args.clients}


def compared(pairs: Sequence[tuple[float, float]], base: str, other: str) -> dict[str, Any]:
    """Rounds of two rates, taken in turns: their medians, and the median of each round's ratio."""
    ratios = [rate / reference for reference, rate in pairs]
    return {
        f"{base}_per_second": round(statistics.median(reference for reference, _ in pairs), 3),
        f"{other}_per_second": round(statistics.median(rate for _, rate in pairs), 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def busy(args: argparse.Namespace, images: list[bytes]) -> dict[str, Any]:
    """With small images: at 200 a second the device is to be the bottleneck, not the decoder."""
    from uepnet.bench.load import drawn_image
    from uepnet.bench.served import served

    images = [drawn_image("320x240")]
    with served(args.model, sleep_seconds=0.005) as url:
        asyncio.run(_closed(url, images, args.clients, min(2.0, args.seconds)))
        before, started = _device_seconds(url), time.perf_counter()
        row = asyncio.run(_closed(url, images, args.clients, args.seconds))
        share = (_device_seconds(url) - before) / (time.perf_counter() - started)
    return {"busy_share": round(share, 3), "per_second": row["per_second"], "clients": args.clients}


def fairness(args: argparse.Namespace, images: list[bytes]) -> dict[str, Any]:
    """The limit: three tiles' time on top of the one-tile image's median without company."""
    import numpy as np

    from uepnet.bench.served import served
    from uepnet.model.count import Counter

    counter = Counter(args.model)
    tile = counter.artifact.tiling.tile
    blank = np.full((1, tile, tile, 3), 128, np.uint8)
    counter.runtime.run(blank)
    times = [_seconds(lambda: counter.runtime.run(blank)) for _ in range(5)]
    tile_seconds = statistics.median(times)
    small, large, tiles = _small_and_large(counter)
    with served(args.model) as url:
        alone = asyncio.run(_closed(url, [small], 1, args.seconds))["latency_ms"]
        beside = asyncio.run(_beside(url, small, large, 3 * args.seconds))["latency_ms"]
    return {
        "tile_ms": round(1000 * tile_seconds, 1),
        "large_tiles": tiles,
        "alone_p50_ms": alone["p50"],
        "beside_p50_ms": beside["p50"],
        "beside_p99_ms": beside["p99"],
        "limit_ms": round(3000 * tile_seconds + alone["p50"], 1),
    }


def _bare(counter: "Counter", images: Sequence[bytes], seconds: float) -> float:
    started, number = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        counter.count(images[number % len(images)])
        number += 1
    return number / (time.perf_counter() - started)


async def _closed(url: str, images: Sequence[bytes], clients: int, seconds: float) -> dict[str, Any]:
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
    import httpx

    lines = httpx.get(f"{url}/metrics", timeout=30).text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("uepnet_batch_seconds_sum ")))


def _small_and_large(counter: "Counter") -> tuple[bytes, bytes, int]:
    """An image of exactly one tile, and one of 40 or a few more."""
    from uepnet.bench.load import drawn_image
    from uepnet.model.tiling import windows

    tiling, scale = counter.artifact.tiling, counter.artifact.scale
    stride = tiling.tile - 2 * tiling.halo
    width, height = 7 * stride + tiling.tile, 4 * stride + tiling.tile
    tiles = len(windows(width, height, tiling.tile, tiling.halo)) * (2 if counter.artifact.mirror else 1)
    sides = [int(side / scale) for side in (tiling.tile, width, height)]
    return drawn_image(f"{sides[0]}x{sides[0]}"), drawn_image(f"{sides[1]}x{sides[2]}"), tiles


def _images(paths: Sequence[Path] | None) -> list[bytes]:
    from uepnet.bench.load import drawn_image, read_body

    return [read_body(path) for path in paths] if paths else [drawn_image("1024x768")]


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
