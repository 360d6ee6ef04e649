"""`uepnet bench load URL`: put load on a running service and report throughput and latency."""

import argparse
import asyncio
import io
import itertools
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from uepnet.bench.plots import check_plot, plot_options, save

EXAMPLES = """examples:
  uepnet bench load http://127.0.0.1:8000                               1, 2, 4 and 8 senders, 10 seconds each
  uepnet bench load http://127.0.0.1:8000 --images frames/*.jpg --senders 16 --seconds 60
  uepnet bench load http://127.0.0.1:8000 --rate 5 10 20 --plot load.png   requests per second
  uepnet bench load http://127.0.0.1:8000 --cameras 100 --rate 100 --json > load.json

Senders wait for an answer before they send again (closed loop): this measures the maximum throughput. With --rate,
requests are sent at that rate whether or not earlier ones were answered (open loop): this measures the latency that
users see. The key of the service, if any, is read from UEPNET_API_KEY."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Put load on a running service; report throughput and latency."
    parser.epilog = EXAMPLES
    parser.add_argument("url", metavar="URL", help="address of the service, such as http://127.0.0.1:8000")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--senders",
        type=within(1, 1024, int),
        nargs="+",
        default=[1, 2, 4, 8],
        metavar="N",
        help="closed loop: numbers of concurrent senders, one row each (default: 1 2 4 8)",
    )
    kind.add_argument(
        "--rate", type=within(0.01, 10_000), nargs="+", metavar="R", help="open loop: requests per second, one row each"
    )
    parser.add_argument(
        "--seconds", type=within(0.1, 3600), default=10.0, metavar="SECONDS", help="duration of each row (default: 10)"
    )
    parser.add_argument(
        "--warm-up",
        type=within(0, 600),
        default=2.0,
        metavar="SECONDS",
        help="time before the measurement (default: 2)",
    )
    parser.add_argument(
        "--images", type=Path, nargs="+", metavar="FILE", help="images to send in turn (default: a generated one)"
    )
    parser.add_argument(
        "--size", default="1024x768", metavar="WxH", help="size of the generated image (default: 1024x768)"
    )
    parser.add_argument(
        "--cameras",
        type=within(0, 100_000, int),
        default=0,
        metavar="N",
        help="send with N camera names in turn (default: 0, no camera)",
    )
    parser.add_argument(
        "--max-in-flight",
        type=within(1, 4096, int),
        default=256,
        metavar="N",
        help="open loop: concurrent requests; more are dropped (default: 256)",
    )
    parser.add_argument(
        "--timeout",
        type=within(0.1, 600),
        default=60.0,
        metavar="SECONDS",
        help="time to wait for an answer (default: 60)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: {machine, rows}")
    plot_options(parser, "latency and throughput over load")


def run(args: argparse.Namespace) -> int:
    from uepnet.bench.machine import machine

    check_plot(args)
    bodies = [read_body(path) for path in args.images] if args.images else [drawn_image(args.size)]
    rows = asyncio.run(measure(args, bodies))
    if args.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=2))
    else:
        _show(rows)
    if args.plot is not None:
        plot(rows, args.plot)
    return 0 if all(row["ok"] for row in rows) and not any(row["failed"] for row in rows) else 1


async def measure(args: argparse.Namespace, bodies: Sequence[bytes]) -> list[dict[str, Any]]:
    import httpx

    from uepnet.bench.traffic import Tally, arriving, closed
    from uepnet.model.errors import InputError

    key = os.environ.get("UEPNET_API_KEY")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = {"Content-Type": "image/*"} | ({"Authorization": f"Bearer {key}"} if key else {})
    async with httpx.AsyncClient(base_url=args.url, headers=headers, limits=limits, timeout=args.timeout) as http:
        number = itertools.count()

        async def send() -> int:
            turn = next(number)
            params = {"camera": f"load-{turn % int(args.cameras)}"} if args.cameras else {}
            try:
                answer = await http.post("/v1/count", content=bodies[turn % len(bodies)], params=params)
            except httpx.HTTPError:
                return 0
            return answer.status_code

        first = await send()
        if first not in (200, 429, 503):
            said = f"answered {first}" if first else "does not answer"
            raise InputError(f"{args.url} {said} to a first image; is it a uepnet service, and is its key right?")
        if args.warm_up:
            await closed(send, 2, args.warm_up)

        async def row(load: float) -> Tally:
            if args.rate:
                return await arriving(send, load, args.seconds, int(args.max_in_flight))
            return await closed(send, int(load), args.seconds)

        return [(await row(load)).row() for load in args.rate or args.senders]


def drawn_image(size: str) -> bytes:
    """A JPEG that is as hard to decode as a photograph: smooth shapes with noise on them. Always the same one."""
    import numpy as np
    from PIL import Image

    from uepnet.model.errors import InputError

    try:
        width, height = (int(side) for side in size.split("x"))
    except ValueError:
        raise InputError(f"--size is WIDTHxHEIGHT, such as 1024x768, not {size!r}.") from None
    if not (1 <= width <= 20_000 and 1 <= height <= 20_000):
        raise InputError(f"--size must have sides of 1 to 20000 pixels, not {size}.")
    rows, columns = np.mgrid[0:height, 0:width]
    waves = 128 + 60 * np.sin(columns / 37) * np.cos(rows / 23)
    noise = np.random.default_rng(0).normal(0, 20, (height, width, 3))
    pixels = np.clip(waves[:, :, None] + noise, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=85)
    return file.getvalue()


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    loads = [row["load"] for row in rows]
    figure = Figure(figsize=(7, 6), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    for level in ("p50", "p95", "p99"):
        above.plot(loads, [row["latency_ms"][level] or math.nan for row in rows], marker="o", label=level)
    above.set(ylabel="latency, ms", ylim=(0, None))
    above.legend()
    below.plot(loads, [row["per_second"] for row in rows], marker="o", label="answered")
    below.plot(loads, [row["rejected"] / row["seconds"] for row in rows], marker="x", label="turned away")
    below.set(xlabel="senders" if rows[0]["mode"] == "closed" else "requests a second", ylabel="a second")
    below.set(ylim=(0, None))
    below.legend()
    save(figure, path)


def _show(rows: Sequence[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # What did not happen gets no column: the table fits 80 characters where all went well.
    others = [name for name in ("rejected", "failed", "dropped") if any(row[name] for row in rows)]
    levels = ("p50", "p95", "p99", "max")
    load = "senders" if rows[0]["mode"] == "closed" else "rate"
    table = Table(load, "a second", *(f"{level} ms" for level in levels), "ok", *others, box=box.SIMPLE_HEAD, padding=0)
    for row in rows:
        latencies = ["-" if row["latency_ms"][level] is None else f"{row['latency_ms'][level]:.1f}" for level in levels]
        counts = [str(row[name]) for name in ("ok", *others)]
        table.add_row(f"{row['load']:g}", f"{row['per_second']:.2f}", *latencies, *counts)
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    Console().print(table)


def read_body(path: Path) -> bytes:
    from uepnet.model.errors import InputError

    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from None


def within(low: float, high: float, kind: type[float] = float) -> Callable[[str], float]:
    """An option's number, or why it is none."""

    def number(text: str) -> float:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not within {low:g} and {high:g}")
        return value

    return number
