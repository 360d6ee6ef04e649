"""The server of one process: uvicorn, with a drain before it stops and exit code 0 after it.

uvicorn runs in a thread of its own, through its public interface alone; the main thread waits for signals.
"""

import asyncio
import logging
import math
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from uepnet.model.errors import InputError, UepnetError
from uepnet.service.core.loaded_model import InferenceRuntime
from uepnet.service.http.app import create_app
from uepnet.service.http.connections import ConnectionLimits
from uepnet.service.http.context import AppState
from uepnet.service.settings import Settings

# The kernel may hand a signal to any thread; Python runs its handler in the main one, once that one wakes up.
SIGNAL_SECONDS = 0.2

log = logging.getLogger(__name__)


class HttpServer:
    """Serves one app. Thread: the methods may be called from any thread but the one that serves."""

    def __init__(self, settings: Settings, runtime: InferenceRuntime | None = None) -> None:
        self.app: FastAPI = create_app(settings, runtime)
        self.state: AppState = self.app.state.parts
        self.forced = False  # a second signal has asked to end at once
        self.connections = ConnectionLimits(settings, self.state.metrics)
        self._settings = settings
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                self.app,
                http=self.connections.protocol(),  # type: ignore[arg-type]  # any protocol factory will do
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,  # longer than a load balancer's: it must never meet a closed connection
                timeout_graceful_shutdown=math.ceil(settings.send_seconds),  # for answers on their way
            )
        )
        self._stopping = threading.Event()
        self._wake: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        return self._uvicorn.started

    def run_until_drained(self) -> UepnetError | None:
        """Serve until SIGTERM or SIGINT; returns why the model could not be loaded, or None. For the main thread."""
        listener = bind(self._settings)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        log.info("listening on http://%s:%d", shown, port)
        if self._settings.drain_seconds < self._settings.deadline_seconds:
            log.warning("drain_seconds is less than deadline_seconds: SIGTERM may cut off admitted requests")
        with self._signals():
            self.start(listener)
            while not self.join(SIGNAL_SECONDS):
                pass
        return self.state.model.failure

    @property
    def lost(self) -> int:
        """Admitted requests that were cut off."""
        return self.state.workers.lost + self.state.cut_off + (self.state.admission.places_taken if self.forced else 0)

    def start(self, listener: socket.socket) -> None:
        """Serve on a bound socket, in a thread."""
        self._thread = threading.Thread(target=self._serve, args=(listener,), name="uepnet-http", daemon=True)
        self._thread.start()

    def stop(self, at_once: bool = False) -> None:
        """Drain and stop; with `at_once` without waiting for anything."""
        if at_once:
            self.forced = self._uvicorn.force_exit = True
        self._stopping.set()
        if self._loop is not None and self._wake is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def join(self, seconds: float | None = None) -> bool:
        """Wait until the server has stopped; whether it has."""
        assert self._thread is not None
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _serve(self, listener: socket.socket) -> None:
        asyncio.run(self._serve_until_stopped(listener))

    async def _serve_until_stopped(self, listener: socket.socket) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        serving = asyncio.create_task(self._uvicorn.serve(sockets=[listener]))
        stopping = asyncio.create_task(self._wait_until_stopping())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        log.info("draining")
        await self._drain()
        self._uvicorn.should_exit = True
        if self.forced:
            # What the app has not ended by now is cancelled with the loop; uvicorn would report that with a traceback.
            logging.getLogger("uvicorn.error").disabled = True
        await serving
        if self.state.cut_off:
            log.error("%d answers were lost: their clients had not taken them in time", self.state.cut_off)
        stopping.cancel()
        log.info("stopped")

    async def _wait_until_stopping(self) -> None:
        """Until someone calls `stop`, or the model cannot be loaded."""
        assert self._wake is not None
        failed = asyncio.create_task(self.state.model.failed.wait())
        woken = asyncio.create_task(self._wake.wait())
        if self._stopping.is_set():  # before the loop ran
            self._wake.set()
        await asyncio.wait((failed, woken), return_when=asyncio.FIRST_COMPLETED)
        failed.cancel()
        self._wake.clear()

    async def _drain(self) -> None:
        """The service is not ready from now on; admitted requests finish, then the sockets may close."""
        assert self._wake is not None
        draining = asyncio.ensure_future(self.state.drain())
        woken = asyncio.ensure_future(self._wake.wait())
        while not self.forced:
            done, _ = await asyncio.wait((draining, woken), return_when=asyncio.FIRST_COMPLETED)
            if draining in done:
                break
            self._wake.clear()
            woken = asyncio.ensure_future(self._wake.wait())
        draining.cancel()
        woken.cancel()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGTERM or SIGINT drains; the second one, whichever it is, ends at once."""

        def handle(number: int, frame: FrameType | None) -> None:
            self.stop(at_once=self._stopping.is_set())

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen()  # from here on no connection is refused: an early client waits
    except OSError as error:
        listener.close()
        where = f"{settings.host} port {settings.port}"
        raise InputError(f"Cannot listen on {where}: {error.strerror or error}.") from None
    return listener
