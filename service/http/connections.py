"""Bounds on connections: their number, the time a request head takes to arrive, the time a reader may stall.

What arrives is parsed in slices, between which the event loop turns to other connections: the chunks of a body may have
a byte each, and parsing them costs thousands of times what receiving them does.

`GuardedConnection` stands between asyncio and uvicorn's HTTP protocol. It uses nothing but the callbacks that every
asyncio protocol has, so it does not depend on the inside of uvicorn.

At the limit a few connections are reserved for health and metrics: whoever watches the service must reach it most of
all when it is full. They answer once and close, and where they are all taken the newest replaces the oldest that has
asked for nothing yet: a probe asks at once, so connections that only wait cannot keep it out.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from uepnet.service.metrics import Metrics
from uepnet.service.settings import Settings

STATE_KEY = "uepnet.connection"  # where a request finds its connection in the ASGI scope's state
RESERVED = 16  # connections beyond max_connections
RESERVED_PATHS = frozenset({"/v2/health/live", "/v2/health/ready", "/metrics"})
RESERVED_SECONDS = 5.0  # for a request head on a reserved connection
LINGER_SECONDS = 5.0  # without a byte from the client
LOG_SECONDS = 10.0
SLICE_BYTES = 4096  # parsed at once, unless it is a body of known length: at most a thousand chunks or header lines
CHUNK_FRAMING_BYTES = 16_384  # that a body may take beside its content, and
CONTENT_PER_FRAMING = 32  # one more for so many of its content: chunks of 200 bytes on average

log = logging.getLogger(__name__)


class ConnectionLimits:
    """The open connections of one server. Thread: runs on the event loop."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.open = 0
        self._metrics = metrics
        self._reserved: dict[GuardedConnection, None] = {}  # the oldest first
        self._refused = 0  # since the last log line
        self._logged = -LOG_SECONDS  # on the loop's clock

    def protocol(self) -> Callable[..., asyncio.Protocol]:
        """What uvicorn calls for each connection, in place of its own protocol class."""

        def make(app_state: dict[str, Any], **uvicorns: Any) -> asyncio.Protocol:
            guarded = GuardedConnection(self)
            guarded.inner = H11Protocol(app_state={**app_state, STATE_KEY: guarded}, **uvicorns)
            return guarded

        return make

    def enter(self, connection: "GuardedConnection") -> bool:
        """Count a new connection; whether it is a reserved one."""
        self.open += 1
        if self.open <= self.settings.max_connections:
            return False
        self._reserved[connection] = None
        if len(self._reserved) > RESERVED:
            oldest = next((other for other in self._reserved if not other.is_serving), connection)
            del self._reserved[oldest]
            self.note_refused()
            oldest.abort()
        return True

    def leave(self, connection: "GuardedConnection") -> None:
        self.open -= 1
        self._reserved.pop(connection, None)

    def note_refused(self) -> None:
        """Count a refused connection; one log line tells of many."""
        self._metrics.reject("connections")
        self._refused += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged >= LOG_SECONDS:
            limit = self.settings.max_connections
            log.warning("%d connections refused: the limit of %d open connections is reached", self._refused, limit)
            self._logged, self._refused = now, 0


class GuardedConnection(asyncio.Protocol):
    """One connection. Thread: runs on the event loop."""

    inner: asyncio.Protocol  # uvicorn's

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.is_serving = False  # the app works on a request
        self.is_reserved = False  # for health and metrics alone
        self.is_lingering = False
        self.aborted = False  # closed by us, in the middle of a head, a body or an answer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._body_pending = False  # more of the request's body may come
        self._is_chunked = False  # the request's body
        self._content_left = 0  # of a body of known length: at least what has not been parsed yet
        self._framing_bytes = 0  # what came while a body was pending, less its content and what that allows
        self._unparsed = bytearray()
        self._parses_later = False
        self._holds_back = False  # uvicorn does not want to read at the moment
        self._receiving = False  # in data_received
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def request_started(self, content_length: int | None) -> None:
        """The app has the whole request head and bounds the time itself from now on. None: the body is chunked."""
        self.is_serving, self._body_pending, self._is_chunked = True, content_length != 0, content_length is None
        self._content_left, self._framing_bytes = content_length or 0, 0
        self._clear("head")

    def body_received(self, size: int, more: bool) -> bool:
        """The app has got a part of the body; whether the body's chunks have a sensible size."""
        self._framing_bytes -= size + size // CONTENT_PER_FRAMING
        self._body_pending = more
        return not self._is_chunked or self._framing_bytes <= CHUNK_FRAMING_BYTES

    def request_ended(self) -> None:
        self.is_serving = False
        if self._is_chunked and self._body_pending and not self.aborted:
            self.close()  # nobody looks at the rest, which would be parsed all the same

    def abort(self) -> None:
        """Close at once, without sending what is buffered."""
        self.aborted = True
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close once everything has been sent. Where the client still sends, read on for a while and drop it.

        Closing a socket with unread data resets the connection, and the client may lose the answer (RFC 9112, 9.6).
        """
        assert self._transport is not None
        if self.is_lingering:
            return
        if self._transport.is_closing() or not (self._body_pending or self._receiving):
            self._transport.close()
            return
        self.is_lingering = True
        with suppress(OSError):  # the client has left
            self._transport.write_eof()
        self._transport.resume_reading()
        self._clear("head")
        self._start("linger", self.limits.settings.receive_seconds)
        self._start("quiet", LINGER_SECONDS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.inner.connection_made(cast(asyncio.Transport, _LingeringTransport(transport, self)))
        self.is_reserved = self.limits.enter(self)
        if not transport.is_closing():
            self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        if self.is_lingering:
            self._clear("quiet")
            self._start("quiet", LINGER_SECONDS)
            return
        self._unparsed += data
        if not self._parses_later:
            self._parse()

    def _parse(self) -> None:
        """Hand on what has come: at once where it is content alone, else a slice, and the rest in a moment."""
        assert self._transport is not None
        self._parses_later = False
        if self.is_lingering or self._transport.is_closing():
            self._unparsed.clear()
            return
        if self._unparsed and not self._holds_back:
            data = bytes(self._unparsed[: max(SLICE_BYTES, self._content_left)])
            del self._unparsed[: len(data)]
            self._content_left = max(0, self._content_left - len(data))
            self._hand_on(data)
        self._parse_later()
        self._read_or_pause()

    def _parse_later(self) -> None:
        if self._unparsed and not self._holds_back and not self._parses_later:
            self._parses_later = True
            self._loop.call_soon(self._parse)

    def _hand_on(self, data: bytes) -> None:
        if self._body_pending:
            self._framing_bytes += len(data)
        self._receiving = True
        try:
            self.inner.data_received(data)
        finally:
            self._receiving = False
        # The app has no say over a head that is not complete, nor over the rest of a body after its answer.
        if not self.is_serving and not self.is_lingering:
            self._start_head_timer()

    def hold_back(self, holds_back: bool) -> None:
        """What uvicorn asks of its transport: to stop reading, or to go on."""
        self._holds_back = holds_back
        self._parse_later()
        self._read_or_pause()

    def _read_or_pause(self) -> None:
        """No more is read than can be parsed: the kernel, and through it the client, keeps the rest."""
        if self._transport is None or self._transport.is_closing() or self.is_lingering:
            return
        if self._unparsed or self._holds_back:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def eof_received(self) -> bool | None:
        return None if self.is_lingering else self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()
        self._start("stall", self.limits.settings.send_seconds)

    def resume_writing(self) -> None:
        self.inner.resume_writing()
        self._clear("stall")

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.leave(self)
        self._unparsed.clear()
        for name in tuple(self._timers):
            self._clear(name)
        self.inner.connection_lost(exc)

    def _start_head_timer(self) -> None:
        seconds = self.limits.settings.receive_seconds
        self._start("head", min(seconds, RESERVED_SECONDS) if self.is_reserved else seconds)

    def _start(self, name: str, seconds: float) -> None:
        """Abort the connection after a time, unless the timer is cleared before; one that runs goes on."""
        if name not in self._timers:
            self._timers[name] = self._loop.call_later(seconds, self.abort)

    def _clear(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


class _LingeringTransport:
    """The transport as uvicorn sees it: the connection decides how it is closed."""

    def __init__(self, transport: asyncio.Transport, connection: GuardedConnection) -> None:
        self._transport = transport
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._connection.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        self._connection.close()

    def write(self, data: bytes) -> None:
        """asyncio would log a line for each part of an answer whose client has left."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        self._connection.hold_back(True)

    def resume_reading(self) -> None:
        self._connection.hold_back(False)


def connection_of(scope: Scope) -> GuardedConnection | None:
    """The connection of a request; None behind another server (Ray's, say)."""
    connection: GuardedConnection | None = scope.get("state", {}).get(STATE_KEY)
    return connection
