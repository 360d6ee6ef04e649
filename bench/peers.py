"""`uepnet bench peers`: this service beside LitServe and a plain FastAPI handler, with the same weights, in one run.

All servers are up at the same time, but only one is asked at a time, in turns, round after round: a busy moment of the
machine hits all of them. Ratios are the median over the rounds.
"""

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uepnet.bench.load import within
from uepnet.bench.plots import check_plot, plot_options, save

if TYPE_CHECKING:
    from uepnet.bench.peer_servers import Peer

NAMES = ("uepnet", "litserve", "fastapi-torch")
EXAMPLES = """examples:
  uepnet bench peers --images photos/*.jpg --json > peers.json
  uepnet bench peers --clients 1 8 --seconds 20 --rounds 5 --plot peers.png
  uepnet bench peers --only uepnet litserve

litserve runs the exported ONNX file in ONNX Runtime, fastapi-torch the same network in torch eager, uepnet its default.
Needs pip install 'uepnet[serve,bench,train]'."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure this service beside LitServe and a FastAPI + torch handler, in turns in one run."
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", type=Path, metavar="DIR", help="model directory (default: the bundled model)")
    parser.add_argument(
        "--images",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="images to count in turn (default: a drawn one of 1024x768)",
    )
    parser.add_argument("--only", choices=NAMES, nargs="+", default=NAMES, help="servers to measure (default: all)")
    parser.add_argument(
        "--clients",
        type=within(1, 1024, int),
        nargs="+",
        default=[1, 8, 32],
        metavar="N",
        help="concurrent clients, one row each (default: 1 8 32)",
    )
    parser.add_argument(
        "--seconds",
        type=within(0.1, 3600),
        default=10.0,
        metavar="SECONDS",
        help="time of each measurement (default: 10)",
    )
    parser.add_argument(
        "--rounds", type=within(1, 1000, int), default=3, metavar="N", help="alternating rounds (default: 3)"
    )
    parser.add_argument(
        "--threads",
        type=within(0, 1024, int),
        default=0,
        metavar="N",
        help="CPU threads; 0 for one per core (default: 0)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: {machine, rows}")
    plot_options(parser, "throughput and latency over the clients")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from uepnet.bench.load import drawn_image, read_body
    from uepnet.bench.machine import machine
    from uepnet.bench.peer_servers import PEERS
    from uepnet.model.device import available_cores

    check_plot(args)
    images = [read_body(path) for path in args.images] if args.images else [drawn_image("1024x768")]
    threads = args.threads or available_cores()
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack, Console(stderr=True).status("starting the servers") as status:
        peers = [stack.enter_context(PEERS[name](args.model, threads)) for name in args.only]
        for clients in args.clients:
            status.update(f"measuring with {clients} clients")
            rows += asyncio.run(compared(peers, images, clients, args.seconds, args.rounds))
    if args.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=2))
    else:
        _show(rows)
    if args.plot is not None:
        plot(rows, args.plot)
    return 0 if all(row["failed"] == 0 for row in rows) else 1


async def compared(
    peers: "Sequence[Peer]", images: Sequence[bytes], clients: int, seconds: float, rounds: int
) -> list[dict[str, Any]]:
    """A row for each server, from rounds in turns."""
    import httpx

    from uepnet.bench.processes import usage
    from uepnet.bench.traffic import Tally, closed

    tallies: dict[str, list[Tally]] = {peer.name: [] for peer in peers}
    cpu = dict.fromkeys(tallies, 0.0)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=600) as http:
        for peer in peers:
            for image in images[:3]:
                await peer.ask(http, image)  # allocates
        for _ in range(rounds):
            for peer in peers:
                before = usage(peer.pid).cpu_seconds
                tallies[peer.name].append(await closed(_sender(peer, http, images), clients, seconds))
                cpu[peer.name] += usage(peer.pid).cpu_seconds - before
    base = [_rate(tally) for tally in tallies[peers[0].name]]
    return [
        _row(peer, clients, tallies[peer.name], cpu[peer.name], base) | {"peak_mib": round(usage(peer.pid).peak_mib)}
        for peer in peers
    ]


def _sender(peer: "Peer", http: Any, images: Sequence[bytes]) -> Any:
    number = 0

    async def send() -> int:
        nonlocal number
        number += 1
        return await peer.ask(http, images[number % len(images)])

    return send


def _rate(tally: Any) -> float:
    return len(tally.latencies) / tally.seconds if tally.seconds else 0.0


def _row(peer: "Peer", clients: int, tallies: Sequence[Any], cpu: float, base: Sequence[float]) -> dict[str, Any]:
    from uepnet.bench.traffic import percentile

    ordered = sorted(latency for tally in tallies for latency in tally.latencies)
    rates = [_rate(tally) for tally in tallies]
    levels = {f"p{level}_ms": percentile(ordered, level) for level in (50, 99)}
    ratios = [rate / other if other else None for rate, other in zip(base, rates, strict=True)]
    known = [ratio for ratio in ratios if ratio is not None]
    return {
        "server": peer.name,
        "clients": clients,
        "images_per_second": round(statistics.median(rates), 3),
        **{name: None if seconds is None else round(1000 * seconds, 1) for name, seconds in levels.items()},
        "cpu_seconds_per_image": round(cpu / len(ordered), 4) if ordered else None,
        "answered": len(ordered),
        "failed": sum(tally.statuses.total() for tally in tallies) - len(ordered),
        "first_over_this": round(statistics.median(known), 3) if known else None,
        "ratios": [None if ratio is None else round(ratio, 3) for ratio in ratios],
    }


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name in dict.fromkeys(row["server"] for row in rows):
        own = [row for row in rows if row["server"] == name]
        clients = [row["clients"] for row in own]
        left.plot(clients, [row["images_per_second"] for row in own], marker="o", label=name)
        right.plot(clients, [row["p99_ms"] for row in own], marker="o", label=name)
    left.set(xlabel="clients", ylabel="images a second", ylim=(0, None))
    right.set(xlabel="clients", ylabel="p99, ms", ylim=(0, None))
    left.legend()
    save(figure, path)


def _show(rows: Sequence[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    names = [name for name in rows[0] if name != "ratios"]
    table = Table(*(name.replace("_", " ") for name in names), box=box.SIMPLE_HEAD, padding=0)
    for row in rows:
        table.add_row(*("-" if row[name] is None else str(row[name]) for name in names))
    Console().print(table)
