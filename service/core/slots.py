"""A few slots for work that keeps a core busy, shared fairly between requests.

A freed slot goes to the request that holds the fewest of them, so a request of many images delays another one by the
rest of one image, however many of its threads wait. Of equals the cheapest comes first, and waiting counts: work
overtakes what is expected to take longer, unless that has waited long already. Long work leaves one slot free, so that
short work never waits for it.

Who would have to wait too long behind others can be refused before waiting.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from uepnet.service.core.tile_queue import DeviceJob

CHECK_SECONDS = 0.2  # how often a waiting thread looks whether anybody still waits for it
PATIENCE = 20  # for each second that work takes longer than other work, it lets that go ahead for so many seconds
LONG_SECONDS = 1.0  # work that is expected to take longer is long

CheckWait = Callable[[float], None]


def at_once() -> float:
    return 0.0


def any_wait(_: float) -> None:
    pass


@dataclass(eq=False, slots=True)
class _Claim:
    """Work that waits for a slot or has one."""

    job: DeviceJob
    expected: Callable[[], float]  # seconds of work; asked again and again, as estimates are corrected meanwhile
    arrived: float = field(default_factory=time.monotonic)
    turn: threading.Event = field(default_factory=threading.Event)

    @property
    def rank(self) -> float:
        return self.arrived + PATIENCE * self.expected()


class Slots:
    """Thread: used by request threads."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()
        self._working: list[_Claim] = []
        self._waiting: list[_Claim] = []  # the one that has waited longest first

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @contextmanager
    def taken(
        self,
        job: DeviceJob,
        expected: Callable[[], float] = at_once,
        check_wait: CheckWait = any_wait,
    ) -> Iterator[None]:
        """One slot for work of so many expected seconds; raises where the job ends before one is free.

        `check_wait` gets the seconds that it would wait for other requests, and may raise.
        """
        claim = _Claim(job, expected)
        self._take(claim, check_wait)
        try:
            job.check()
            yield
        finally:
            self._give_back(claim)

    def _take(self, claim: _Claim, check_wait: CheckWait) -> None:
        with self._lock:
            check_wait(self._wait(claim))
            self._waiting.append(claim)
            self._hand_out()
        try:
            while not claim.turn.wait(CHECK_SECONDS):
                claim.job.check()
        except BaseException:
            with self._lock:
                if not claim.turn.is_set():
                    self._waiting.remove(claim)
                    raise
            self._give_back(claim)
            raise

    def _give_back(self, claim: _Claim) -> None:
        with self._lock:
            self._working.remove(claim)
            self._hand_out()

    # The methods below are called under the lock.

    def _wait(self, claim: _Claim) -> float:
        """How long others that come before it are expected to take; its own request does not count."""
        long, rank = self._is_long(claim), claim.rank
        before = [*self._working, *(other for other in self._waiting if other.rank <= rank)]
        if len(before) < self._number and not long:
            return 0.0
        seconds = sum(other.expected() for other in before if other.job is not claim.job)
        return seconds / (self._for_long if long else self._number)

    def _hand_out(self) -> None:
        while self._waiting and (ready := self._ready()):
            next_one = min(ready, key=lambda claim: (self._held(claim.job), claim.rank))  # the first of equals
            self._waiting.remove(next_one)
            self._working.append(next_one)
            next_one.turn.set()

    def _ready(self) -> list[_Claim]:
        """Those that could have a slot now."""
        if len(self._working) >= self._number:
            return []
        if sum(map(self._is_long, self._working)) < self._for_long:
            return self._waiting
        return [claim for claim in self._waiting if not self._is_long(claim)]

    def _held(self, job: DeviceJob) -> int:
        return sum(claim.job is job for claim in self._working)

    @property
    def _for_long(self) -> int:
        return max(1, self._number - 1)

    @staticmethod
    def _is_long(claim: _Claim) -> bool:
        return claim.expected() > LONG_SECONDS
