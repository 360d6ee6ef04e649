"""Two kinds of load for any service, and their measurements.

Closed loop: a fixed number of senders, each waiting for an answer before sending again; measures maximum throughput.
Open loop: requests are sent at a rate, whether or not earlier ones were answered, like cameras do; measures the
latency that users see, from the time when a request was due, so that a stalled service cannot hide its delay.
"""

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Send = Callable[[], Awaitable[int]]  # sends one request, returns the HTTP status; 0 without an answer
PERCENTILES = (50, 90, 95, 99)
REJECTED = (408, 429, 503)


@dataclass(slots=True)
class Tally:
    """The answers; latency is recorded only for successful ones, because a refusal is quick."""

    mode: Literal["closed", "open"]
    load: float  # senders, or requests per second
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    dropped: int = 0  # due but not sent: too many were in flight

    def note(self, status: int, latency: float) -> None:
        self.statuses[status] += 1
        if 200 <= status < 300:
            self.latencies.append(latency)

    def row(self) -> dict[str, Any]:
        ordered = sorted(self.latencies)
        rejected = sum(self.statuses[status] for status in REJECTED)
        return {
            "mode": self.mode,
            "load": self.load,
            "seconds": round(self.seconds, 2),
            "ok": len(ordered),
            "rejected": rejected,
            "failed": self.statuses.total() - len(ordered) - rejected,
            "dropped": self.dropped,
            "statuses": {str(status): number for status, number in sorted(self.statuses.items())},
            "per_second": round(len(ordered) / self.seconds, 3) if self.seconds else 0.0,
            "latency_ms": {f"p{level}": _milliseconds(percentile(ordered, level)) for level in PERCENTILES}
            | {"max": _milliseconds(ordered[-1] if ordered else None)},
        }


def percentile(ordered: list[float], level: float) -> float | None:
    """The percentile by nearest rank, which is a latency that occurred; None without latencies."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * level / 100) - 1)]


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 2)


async def closed(send: Send, senders: int, seconds: float) -> Tally:
    tally = Tally("closed", senders)
    started = time.perf_counter()

    async def ask_again_and_again() -> None:
        while (sent := time.perf_counter()) - started < seconds:
            status = await send()
            tally.note(status, time.perf_counter() - sent)
            if status in (0, 429, 503):
                await asyncio.sleep(0.05)  # a refused sender that retries at once would only measure refusals

    await asyncio.gather(*(ask_again_and_again() for _ in range(senders)))
    tally.seconds = time.perf_counter() - started
    return tally


async def arriving(send: Send, rate: float, seconds: float, max_in_flight: int, seed: int = 0) -> Tally:
    """Open loop with Poisson arrivals, the same in every run; arrivals beyond max_in_flight are dropped."""
    tally = Tally("open", rate)
    gaps = random.Random(seed)
    under_way: set[asyncio.Task[None]] = set()
    started = time.perf_counter()

    async def ask(due: float) -> None:
        status = await send()
        tally.note(status, time.perf_counter() - due)

    due = started
    while (due := due + gaps.expovariate(rate)) - started < seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        if len(under_way) >= max_in_flight:
            tally.dropped += 1
            continue
        task = asyncio.create_task(ask(due))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    tally.seconds = time.perf_counter() - started
    return tally
