"""Who may come in: a bounded number of requests, a bounded number of bytes.

A body is received before its request takes a place, within a total time: a slow sender holds no place. It is
charged as it arrives, so memory is bounded by what was sent, not by what was announced. At worst the process
holds max_buffered_bytes of bodies and answers, and for each of max_requests one decoded image: 3 bytes for each
of max_pixels, and as much again while an overlay is drawn.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from fastapi import Request

from uepnet.model.errors import Cancelled
from uepnet.service.metrics import Metrics
from uepnet.service.problems import Refused
from uepnet.service.settings import Settings


class House:
    """The places and the bytes. Lives on the event loop; nothing here is called from a thread."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._buffered_bytes = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.free_places = settings.max_requests
        self.draining = False
        metrics.requests_limit.set(settings.max_requests)

    def check_draining(self, counted: bool = True) -> None:
        if self.draining:
            if counted:
                self._metrics.reject("draining")
            detail = "The service is shutting down; another one may answer."
            raise Refused("draining", detail, {"Connection": "close"})

    def check_open(self) -> None:
        """Refuse where there is no place."""
        self.check_draining()
        if self.free_places < 1:
            self._metrics.reject("full")
            raise Refused("full", "All places are taken; try again in a moment.")

    def take(self, most: int = 1) -> int:
        """Admit a request: up to half of the free places, at least one. Says how many; they are to be given back."""
        self.check_open()
        places = max(1, min(most, self.free_places // 2))
        self.free_places -= places
        self._metrics.in_flight.inc(places)
        self._quiet.clear()
        return places

    def give_back(self, places: int = 1) -> None:
        self.free_places += places
        self._metrics.in_flight.dec(places)
        if self.free_places == self._settings.max_requests:
            self._quiet.set()

    async def wait_until_quiet(self) -> None:
        await self._quiet.wait()

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Bytes that are there already, charged until the end of the block."""
        self._charge(size)
        try:
            yield
        finally:
            self._charge(-size)

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """A request's whole body, charged until the end of the block."""
        self.check_draining()
        content = io.BytesIO()  # its getvalue() hands out the buffer without another copy
        try:
            await self._fill(content, request)
            request.state.bytes_in = content.tell()
            yield content.getvalue()
        finally:
            self._charge(-content.tell())

    async def _fill(self, content: io.BytesIO, request: Request) -> None:
        declared = request.headers.get("content-length", "")
        if declared.isdecimal():
            self._check_size(int(declared[:18]))  # more digits than that are too many bytes in any case
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refused("unsupported-media-type", "Send the body without Content-Encoding.")
        seconds = self._settings.receive_seconds
        try:
            async with asyncio.timeout(seconds):
                async for chunk in _chunks(request):
                    self._check_size(content.tell() + len(chunk))
                    self._check_memory(len(chunk))
                    self._charge(len(chunk))
                    content.write(chunk)
        except TimeoutError:
            self._metrics.reject("slow")
            detail = f"A request must arrive whole within {seconds:g} seconds."
            raise Refused("slow-request", detail, {"Connection": "close"}) from None

    def _check_size(self, size: int) -> None:
        limit = int(self._settings.max_body_bytes)
        if size > limit:
            self._metrics.reject("too_large")
            raise Refused("body-too-large", f"A body may have at most {limit} bytes.")

    def _check_memory(self, size: int) -> None:
        if self._buffered_bytes + size > self._settings.max_buffered_bytes:
            self._metrics.reject("memory")
            raise Refused("full", "Too many bytes are under way; try again in a moment.")

    def _charge(self, size: int) -> None:
        self._buffered_bytes += size
        self._metrics.buffered_bytes.set(self._buffered_bytes)


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("The client went away.")
        yield message.get("body", b"")
        more = message.get("more_body", False)
