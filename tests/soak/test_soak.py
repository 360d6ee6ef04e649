"""The attacks of tests/support/attacks.py on a real process, mixed at random: `make soak`, for hours with SOAK=14400.

What is asserted are the promises of docs/operations.md: honest requests are answered meanwhile, liveness answers at
once, nothing fails on our side, memory stays below its bound and goes back, and SIGTERM loses nothing.
"""

import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import httpx
import pytest
from support.attacks import ATTACKS, CLOSED, Attack
from support.memory import resident_mib
from support.servers import Process, encoded, grey
from support.waiting import eventually

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
LIVENESS_SECONDS = float(os.environ.get("SOAK_LIVENESS_SECONDS", "1"))  # more on a machine that does other work
log = logging.getLogger(__name__)

ATTACKERS = 4
HONEST_SECONDS = 20  # the longest that others may wait
MEMORY_MIB = 1536  # docs/operations.md, Sizing, for the settings below
SETTINGS = {"max_pixels": 4_000_000, "max_side": 32_768, "max_connections": 256, "send_seconds": 5}
IMAGE = encoded(grey(64, 64))


class Watch:
    """What somebody sees who is honest, and somebody who watches the process."""

    def __init__(self, server: Process) -> None:
        self.server = server
        self.statuses: Counter[int] = Counter()
        self.attacked: Counter[int] = Counter()
        self.slowest_liveness = self.slowest_count = self.largest_mib = 0.0
        self.end = threading.Event()
        self.failures: list[str] = []
        self._threads: list[threading.Thread] = []

    def start(self, target: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=target, daemon=True))
        self._threads[-1].start()

    def stop(self) -> None:
        self.end.set()
        for thread in self._threads:
            thread.join(150)
            assert not thread.is_alive(), "an attack has not ended"

    def liveness(self) -> None:
        while not self.end.wait(0.1):
            began = time.monotonic()
            try:
                httpx.get(f"{self.server.url}/v2/health/live", timeout=30).raise_for_status()
            except httpx.HTTPError as error:
                self.failures.append(f"liveness: {error!r}")
            self.slowest_liveness = max(self.slowest_liveness, time.monotonic() - began)
            self.largest_mib = max(self.largest_mib, resident_mib(self.server.popen.pid))

    def honest(self) -> None:
        while not self.end.wait(0.1):
            began = time.monotonic()
            headers = {"Content-Type": "image/png"}
            response = httpx.post(f"{self.server.url}/v1/count", content=IMAGE, headers=headers, timeout=60)
            self.statuses[response.status_code] += 1
            if response.status_code == 200:
                self.slowest_count = max(self.slowest_count, time.monotonic() - began)

    def attack(self, attacks: tuple[Attack, ...], seed: int) -> Callable[[], None]:
        def run() -> None:
            rng = random.Random(seed)
            while not self.end.is_set():
                self.attacked.update(rng.choice(attacks)(self.server.url, rng))

        return run

    def check(self, memory_mib: float) -> None:
        assert not self.failures
        assert self.slowest_liveness < LIVENESS_SECONDS
        assert self.slowest_count < HONEST_SECONDS
        assert self.largest_mib < memory_mib
        assert set(self.statuses) <= {200, 429}
        assert self.statuses[200] > 0
        assert not [status for status in self.attacked if status >= 500 and status not in (503, 504)]


def watched(server: Process, attacks: tuple[Attack, ...], seconds: float, attackers: int) -> Watch:
    watch = Watch(server)
    watch.start(watch.liveness)
    watch.start(watch.honest)
    for number in range(attackers):
        watch.start(watch.attack(attacks, SEED + number))
    time.sleep(seconds)
    watch.stop()
    attacked, now = dict(sorted(watch.attacked.items())), resident_mib(server.popen.pid)
    log.info("seed %d: attacks %s (%d: closed), honest %s", SEED, attacked, CLOSED, dict(watch.statuses))
    log.info("slowest count %.2f s, slowest liveness %.2f s", watch.slowest_count, watch.slowest_liveness)
    log.info("at most %.0f MiB, now %.0f MiB", watch.largest_mib, now)
    return watch


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_one_kind_of_attack(process: Callable[..., Process], attack: Attack) -> None:
    """With the default settings, one request after the other: none takes more than a gigabyte."""
    server = process()
    before = resident_mib(server.popen.pid)
    watched(server, (attack,), min(SECONDS, 5), attackers=1).check(before + 1024)
    eventually(lambda: resident_mib(server.popen.pid) < before + 300)


def test_all_kinds_at_once_then_memory_goes_back_and_sigterm_loses_nothing(process: Callable[..., Process]) -> None:
    server = process(**SETTINGS)
    httpx.post(f"{server.url}/v1/count", content=IMAGE, headers={"Content-Type": "image/png"}).raise_for_status()
    before = resident_mib(server.popen.pid)
    watched(server, ATTACKS, SECONDS, ATTACKERS).check(MEMORY_MIB)
    eventually(lambda: resident_mib(server.popen.pid) < before + 300)
    server.terminate()
    assert server.exit_code() == 0
    assert not [line for line in server.log if "Traceback" in line]
