"""One answer for all who ask for it at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """Makes one answer at a time; those who ask while one is made share the next, so nobody gets one from before.

    Thread: runs on the event loop.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._next: asyncio.Future[T] | None = None

    async def get(self) -> T:
        if self._next is None:
            self._next = asyncio.ensure_future(self._make_next())
        return await asyncio.shield(self._next)

    async def _make_next(self) -> T:
        async with self._lock:
            self._next = None
            return await self._make()
