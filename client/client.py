"""The typed HTTP client: `Client("http://localhost:8000").count("crowd.jpg").count`, and its async twin.

Connections are kept, and shared between threads. `retry.py` says how long a call waits for a server that is busy or
away; `requests.py` what is sent and how answers are read.
"""

import asyncio
from collections.abc import Sequence
from threading import Event
from types import TracebackType
from typing import Self, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray

from uepnet.client import requests
from uepnet.client.requests import Call, Source
from uepnet.client.retry import Outcome, Patience, Server
from uepnet.model.artifact import Decoding
from uepnet.model.errors import Cancelled, UepnetError
from uepnet.model.zones import Zone
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
        decoding: Decoding | None = None,
    ) -> CountAnswer:
        """Count a path, bytes, an open file, a PIL image or an RGB array; `camera` names it on the server.

        `decoding` (here and below) is argmax for the paper's, without a range; None is the server's default.
        """
        return self._send(requests.count(image, zones, camera, with_map, decoding))

    def count_batch(
        self, images: Sequence[Source], zones: Sequence[Zone] = (), *, decoding: Decoding | None = None
    ) -> list[CountAnswer | UepnetError]:
        """Many images in one request; one that cannot be read or counted gives its error, the others their counts."""
        call = requests.batch(images, zones, decoding)
        return call if isinstance(call, list) else self._send(call)

    def overlay(
        self, image: Source, zones: Sequence[Zone] = (), *, decoding: Decoding | None = None
    ) -> NDArray[np.uint8]:
        """The image with heat map, zones and legend, RGB [height, width, 3]."""
        return self._send(requests.picture(image, zones, "overlay", decoding))

    def heat_map(self, image: Source, *, decoding: Decoding | None = None) -> NDArray[np.uint8]:
        return self._send(requests.picture(image, (), "heat", decoding))

    def count_map(self, image: Source, *, decoding: Decoding | None = None) -> NDArray[np.float32]:
        """People per cell, [rows, columns]."""
        return self._send(requests.people(image, "count", decoding))

    def density_map(self, image: Source, *, decoding: Decoding | None = None) -> NDArray[np.float32]:
        """People per pixel, [height, width]."""
        return self._send(requests.people(image, "density", decoding))

    def model(self) -> ModelAnswer:
        return self._send(requests.model())

    @property
    def host(self) -> str:
        return self._server.url.host

    def close(self) -> None:
        """Also ends calls that wait in other threads: they raise Cancelled."""
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
        decoding: Decoding | None = None,
    ) -> CountAnswer:
        return await self._send(await asyncio.to_thread(requests.count, image, zones, camera, with_map, decoding))

    async def count_batch(
        self, images: Sequence[Source], zones: Sequence[Zone] = (), *, decoding: Decoding | None = None
    ) -> list[CountAnswer | UepnetError]:
        call = await asyncio.to_thread(requests.batch, images, zones, decoding)
        return call if isinstance(call, list) else await self._send(call)

    async def overlay(
        self, image: Source, zones: Sequence[Zone] = (), *, decoding: Decoding | None = None
    ) -> NDArray[np.uint8]:
        return await self._send(await asyncio.to_thread(requests.picture, image, zones, "overlay", decoding))

    async def heat_map(self, image: Source, *, decoding: Decoding | None = None) -> NDArray[np.uint8]:
        return await self._send(await asyncio.to_thread(requests.picture, image, (), "heat", decoding))

    async def count_map(self, image: Source, *, decoding: Decoding | None = None) -> NDArray[np.float32]:
        return await self._send(await asyncio.to_thread(requests.people, image, "count", decoding))

    async def density_map(self, image: Source, *, decoding: Decoding | None = None) -> NDArray[np.float32]:
        return await self._send(await asyncio.to_thread(requests.people, image, "density", decoding))

    async def model(self) -> ModelAnswer:
        return await self._send(requests.model())

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
