"""Admission: a bounded number of requests at once, and a bounded number of bytes in memory.

A request takes a place only after its body has arrived, so a slow sender holds no place. Bytes are counted as
they arrive: memory is bounded by what was sent, not by what was announced.
"""

import asyncio
import math
import threading
from collections import deque
from statistics import median
from typing import NoReturn

from uepnet.service.errors import Refused
from uepnet.service.metrics import Metrics
from uepnet.service.settings import Settings

# The median of so many requests is what is expected of the next: a few huge images must not shut out small ones, which
# do not wait for them, as tiles take turns.
REMEMBERED = 15


class Admission:
    """Counts places and bytes.

    Thread: places belong to the event loop; `check_wait` and the methods for bytes run on any thread.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._buffered_bytes = 0
        self._bytes_lock = threading.Lock()
        self._idle = asyncio.Event()
        self._idle.set()
        self.free_places = settings.max_requests
        self._expected = 0  # free places that admitted requests need for their next step
        self._admitted = 0  # requests that have held a place and are not answered yet
        self._shares: deque[float] = deque(maxlen=REMEMBERED)  # seconds per request, of the latest ones
        self._seconds_per_request = 0.0  # their median; 0 until the first has finished
        self.draining = False
        metrics.requests_limit.set(settings.max_requests)

    def check_draining(self, counted: bool = True) -> None:
        """Refuse while the service shuts down; `counted` is whether the refusal counts as a rejected request."""
        if self.draining:
            if counted:
                self._metrics.reject("draining")
            raise Refused("draining", "The service is shutting down; try another instance.", close=True)

    def check_place(self) -> None:
        """Refuse where a request could not be admitted now, or would wait too long."""
        self.check_draining()
        if self.places_taken > 1:
            self.check_wait(self.places_taken * self._seconds_per_request)
        if self.free_places - self._expected < 1:
            self._refuse_full()

    def check_wait(self, seconds: float) -> None:
        """Refuse who is expected to wait so long for others, where it is too long. Runs on any thread."""
        too_many = seconds - self._settings.max_wait_seconds
        if too_many > 0:
            self._metrics.reject("full")
            detail = "More requests are waiting than the service can answer soon; try again in a moment."
            raise Refused("full", detail, retry_after_seconds=math.ceil(too_many))

    def admit(self) -> None:
        """Begin with a request that will need places, or refuse it. Once admitted it is finished, also in a drain."""
        self.check_place()
        self._admitted += 1
        self._idle.clear()

    def finish(self) -> None:
        """An admitted request has got its answer, to the last byte."""
        self._admitted -= 1
        self._note_idle()

    def take_places(self, most: int = 1, expected: bool = False) -> int:
        """For an admitted request: up to half of the free places, at least one. Returns how many, to be given back.

        `expected` is whether one has been kept for it.
        """
        self._expected -= expected
        free = self.free_places - self._expected
        if free < 1:
            self._refuse_full()
        places = max(1, min(most, free // 2))
        self.free_places -= places
        self._metrics.in_flight.inc(places)
        self._idle.clear()
        return places

    def expect(self) -> None:
        """Keep a free place, just given back, for the next step of an admitted request."""
        self._expected += 1

    def expect_no_more(self) -> None:
        self._expected -= 1

    def give_back(self, places: int = 1, seconds: float | None = None, beside: int = 1) -> None:
        """`seconds` is how long the places were held, and `beside` how many were taken then, this one included.

        None where it does not tell how fast requests are answered.
        """
        if seconds is not None:
            # Requests that run side by side share the machine: one is finished every seconds / their number.
            self._shares.append(seconds / max(beside, self.places_taken))
            self._seconds_per_request = median(self._shares)
        self.free_places += places
        self._metrics.in_flight.dec(places)
        self._note_idle()

    @property
    def places_taken(self) -> int:
        return self._settings.max_requests - self.free_places

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    def _note_idle(self) -> None:
        if self.free_places == self._settings.max_requests and not self._admitted:
            self._idle.set()

    def _refuse_full(self) -> NoReturn:
        self._metrics.reject("full")
        raise Refused("full", "The service is at its limit of concurrent requests; try again in a moment.")

    def reserve_bytes(self, size: int) -> None:
        """Count `size` more bytes, or refuse them where they exceed the memory budget."""
        limit = int(self._settings.max_buffered_bytes)
        if size > limit:
            self._metrics.reject("memory")
            raise Refused("answer-too-large", f"The answer takes more than the {limit} bytes that answers may take.")
        with self._bytes_lock:
            fits = self._buffered_bytes + size <= limit
            if fits:
                self._add(size)
        if not fits:
            self._metrics.reject("memory")
            raise Refused("full", "The service is at its limit of buffered bytes; try again in a moment.")

    def count_bytes(self, size: int) -> None:
        """Count bytes that exist already; a negative size takes them back."""
        with self._bytes_lock:
            self._add(size)

    def _add(self, size: int) -> None:
        self._buffered_bytes += size
        self._metrics.buffered_bytes.set(self._buffered_bytes)
