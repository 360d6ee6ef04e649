"""The typed HTTP client: `Client("http://localhost:8000").count("crowd.jpg").count`, and its async twin.

Connections are kept, and shared between threads. How long a call waits for a busy or absent server is said in
`patience.py`; what is sent and how answers are read, in `calls.py`.
"""

import asyncio
from collections.abc import Sequence
from threading import Event
from types import TracebackType
from typing import Self, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray

from uepnet.model.errors import Cancelled, UepnetError
from uepnet.model.zones import Zone
from uepnet.service import calls
from uepnet.service.calls import Call, Source
from uepnet.service.patience import Outcome, Patience, Server
from uepnet.service.schemas import CountAnswer, ModelAnswer

__all__ = ["AsyncClient", "Client", "CountAnswer", "ModelAnswer"]

T = TypeVar("T")


class Client:
    """Counts over HTTP. Close it, or use it in a `with` statement; threads may share it."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout_seconds: float = 60.0,
        patience_seconds: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._server = Server(url, api_key, timeout_seconds, patience_seconds)
        self._closed = Event()
        self._http = httpx.Client(
            base_url=self._server.url,
            headers=self._server.headers,
            timeout=self._server.timeout,
            transport=transport,
        )

    def count(
        self,
        image: Source,
        zones: Sequence[Zone] = (),
        *,
        camera: str | None = None,
        with_map: bool = False,
    ) -> CountAnswer:
        """Count a file, its bytes or an RGB array; `camera` shows it under that name on the server."""
        return self._send(calls.count(image, zones, camera, with_map))

    def count_batch(self, images: Sequence[Source], zones: Sequence[Zone] = ()) -> list[CountAnswer | UepnetError]:
        """Many images in one request; a bad one gives its error and spoils no other."""
        return self._send(calls.batch(images, zones))

    def overlay(self, image: Source, zones: Sequence[Zone] = ()) -> NDArray[np.uint8]:
        """The image with heat map, zones and legend, RGB [height, width, 3]."""
        return self._send(calls.picture(image, zones, "overlay"))

    def heat_map(self, image: Source) -> NDArray[np.uint8]:
        return self._send(calls.picture(image, (), "heat"))

    def count_map(self, image: Source) -> NDArray[np.float32]:
        """People per cell, [rows, columns]."""
        return self._send(calls.people(image, "count"))

    def density_map(self, image: Source) -> NDArray[np.float32]:
        """People per pixel, [height, width]."""
        return self._send(calls.people(image, "density"))

    def model(self) -> ModelAnswer:
        return self._send(calls.model())

    @property
    def host(self) -> str:
        return self._server.url.host

    def close(self) -> None:
        """Also ends the waiting of calls in other threads: they raise Cancelled."""
        self._closed.set()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, call: Call[T]) -> T:
        patience = Patience(self._server)
        while True:
            outcome: Outcome
            try:
                outcome = self._http.send(call.request(self._http))
            except httpx.TransportError as error:
                outcome = error
            pause = patience.pause(outcome)
            if pause is None:
                return self._server.answer(call, outcome)
            if self._closed.wait(pause):
                raise Cancelled("The client was closed before the server answered.")


class AsyncClient:
    """`Client` for asyncio: the same methods, awaited."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout_seconds: float = 60.0,
        patience_seconds: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._server = Server(url, api_key, timeout_seconds, patience_seconds)
        self._http = httpx.AsyncClient(
            base_url=self._server.url,
            headers=self._server.headers,
            timeout=self._server.timeout,
            transport=transport,
        )

    async def count(
        self,
        image: Source,
        zones: Sequence[Zone] = (),
        *,
        camera: str | None = None,
        with_map: bool = False,
    ) -> CountAnswer:
        return await self._send(await asyncio.to_thread(calls.count, image, zones, camera, with_map))

    async def count_batch(
        self, images: Sequence[Source], zones: Sequence[Zone] = ()
    ) -> list[CountAnswer | UepnetError]:
        return await self._send(await asyncio.to_thread(calls.batch, images, zones))

    async def overlay(self, image: Source, zones: Sequence[Zone] = ()) -> NDArray[np.uint8]:
        return await self._send(await asyncio.to_thread(calls.picture, image, zones, "overlay"))

    async def heat_map(self, image: Source) -> NDArray[np.uint8]:
        return await self._send(await asyncio.to_thread(calls.picture, image, (), "heat"))

    async def count_map(self, image: Source) -> NDArray[np.float32]:
        return await self._send(await asyncio.to_thread(calls.people, image, "count"))

    async def density_map(self, image: Source) -> NDArray[np.float32]:
        return await self._send(await asyncio.to_thread(calls.people, image, "density"))

    async def model(self) -> ModelAnswer:
        return await self._send(calls.model())

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, call: Call[T]) -> T:
        patience = Patience(self._server)
        while True:
            outcome: Outcome
            try:
                outcome = await self._http.send(call.request(self._http))
            except httpx.TransportError as error:
                outcome = error
            pause = patience.pause(outcome)
            if pause is None:
                return self._server.answer(call, outcome)
            await asyncio.sleep(pause)
