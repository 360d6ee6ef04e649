"""A few slots for work that keeps a core busy, shared fairly between requests.

A freed slot goes to the request that holds the fewest of them, of these to the one that has waited longest. So a
request of many images delays another one by the rest of one image, however many of its threads wait. A semaphore
would let a thread that comes back at once overtake those that wait.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from uepnet.service.core.tile_queue import DeviceJob

CHECK_SECONDS = 0.2  # how often a waiting thread looks whether anybody still waits for it


class Slots:
    """Thread: used by request threads."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._lock = threading.Lock()
        self._held: Counter[DeviceJob] = Counter()
        self._waiting: list[tuple[DeviceJob, threading.Event]] = []  # the one that has waited longest first

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @contextmanager
    def taken(self, job: DeviceJob) -> Iterator[None]:
        """One slot; raises where the job ends before one is free."""
        self._take(job)
        try:
            job.check()
            yield
        finally:
            self._give_back(job)

    def _take(self, job: DeviceJob) -> None:
        turn = threading.Event()
        with self._lock:
            self._waiting.append((job, turn))
            self._hand_out()
        try:
            while not turn.wait(CHECK_SECONDS):
                job.check()
        except BaseException:
            with self._lock:
                if not turn.is_set():
                    self._waiting.remove((job, turn))
                    raise
            self._give_back(job)
            raise

    def _give_back(self, job: DeviceJob) -> None:
        with self._lock:
            self._held[job] -= 1
            self._held += Counter()  # forget jobs that hold none
            self._free += 1
            self._hand_out()

    def _hand_out(self) -> None:
        """Called under the lock."""
        while self._free and self._waiting:
            next_one = min(self._waiting, key=lambda entry: self._held[entry[0]])  # the first of equals
            self._waiting.remove(next_one)
            job, turn = next_one
            self._held[job] += 1
            self._free -= 1
            turn.set()
