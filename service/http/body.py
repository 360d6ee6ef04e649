"""Receiving a request's body: within limits on size, memory and time."""

import asyncio
import io
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.types import Receive

from uepnet.model.errors import Cancelled
from uepnet.service.errors import Refused

if TYPE_CHECKING:
    from uepnet.service.http.context import RequestContext


@asynccontextmanager
async def received(context: "RequestContext", max_bytes: int | None = None) -> AsyncIterator[bytes]:
    """The whole body, counted against the memory budget until the end of the block. `max_bytes` may lower its limit."""
    admission = context.app.admission
    limit = min(int(context.app.settings.max_body_bytes), max_bytes or sys.maxsize)
    content = io.BytesIO()  # its getvalue() returns the buffer without another copy
    try:
        await _receive(content, context, limit)
        context.bytes_in = content.tell()
        yield content.getvalue()
    finally:
        admission.count_bytes(-content.tell())


async def _receive(content: io.BytesIO, context: "RequestContext", limit: int) -> None:
    app, headers = context.app, context.headers
    declared = headers.get("content-length", "")
    if declared.isdecimal():
        _check_size(int(declared[:18]), limit, context)  # a number with more digits is too large in any case
    if headers.get("content-encoding", "identity") != "identity":
        raise Refused("unsupported-media-type", "Send the body without Content-Encoding.")
    seconds = app.settings.receive_seconds
    try:
        async with asyncio.timeout(seconds):
            async for chunk in _chunks(context.receive):
                _check_size(content.tell() + len(chunk), limit, context)
                app.admission.reserve_bytes(len(chunk))
                content.write(chunk)
    except TimeoutError:
        app.metrics.reject("slow")
        raise Refused("slow-request", f"A request must arrive within {seconds:g} seconds.", close=True) from None


def _check_size(size: int, limit: int, context: "RequestContext") -> None:
    if size > limit:
        context.app.metrics.reject("too_large")
        raise Refused("body-too-large", f"A body may have at most {limit} bytes.")


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("The client closed the connection.")
        yield message.get("body", b"")
        more = message.get("more_body", False)
