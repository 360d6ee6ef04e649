"""uvicorn with what it lacks: deadlines for slow connections, a drain that exits 0, a failed load that ends it."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from uepnet.model.errors import InputError, UepnetError
from uepnet.service.app import create_app
from uepnet.service.engine import ServedRuntime
from uepnet.service.serving import Serving
from uepnet.service.settings import Settings

log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Serves one app in one process; `run_until_drained` returns once the last request has been answered."""

    def __init__(self, settings: Settings, runtime: ServedRuntime | None = None) -> None:
        self.app: FastAPI = create_app(settings, runtime)
        self.serving: Serving = self.app.state.serving
        self._settings = settings
        super().__init__(
            uvicorn.Config(
                self.app,
                host=settings.host,
                port=settings.port,
                http=guarded_protocol(settings),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,  # longer than a load balancer's: it must never meet a closed connection
                timeout_graceful_shutdown=5,
            )
        )

    def run_until_drained(self) -> UepnetError | None:
        """Serve until SIGTERM or SIGINT; answers why the model could not be loaded, or None."""
        listener = bind(self._settings)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        log.info("listening on http://%s:%d", shown, port)
        self.run(sockets=[listener])
        return self.serving.failure

    async def on_tick(self, counter: int) -> bool:
        if self.serving.failure is not None:
            return True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Not ready at once, admitted requests finish, then the sockets close."""
        log.info("draining")
        drained = asyncio.ensure_future(self.serving.drain())
        while not drained.done() and not self.force_exit:
            await asyncio.wait([drained], timeout=0.1)
        drained.cancel()
        await super().shutdown(sockets)
        if self.force_exit:
            # What the app has not ended by now is cancelled with the loop; uvicorn would report that with a traceback.
            logging.getLogger("uvicorn.error").disabled = True
        log.info("stopped")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's, does not raise the signal again at the end: a drained stop is a success, exit code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains; the second one, whichever it is, ends at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


def bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen()  # from here on nobody is refused: whoever is early waits
    except OSError as error:
        listener.close()
        where = f"{settings.host} port {settings.port}"
        raise InputError(f"Cannot listen on {where}: {error.strerror or error}.") from None
    return listener


def guarded_protocol(settings: Settings) -> type[H11Protocol]:
    """uvicorn's HTTP protocol with bounds on what costs memory or a file descriptor: connections, and their time."""

    class Guarded(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None
        _stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > settings.max_connections:
                transport.abort()
            else:
                self._deadline = self._abort_after(settings.receive_seconds)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            # The app has no say over a request whose head is not here yet, nor over a body after its answer.
            idle = self.conn.their_state is h11.IDLE
            unwanted = self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE
            if not idle and not unwanted:
                self._clear_deadline()
            elif self._deadline is None:
                self._deadline = self._abort_after(settings.receive_seconds)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self._abort_after(settings.send_seconds)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._clear_stalled()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._clear_deadline()
            self._clear_stalled()

        def _abort_after(self, seconds: float) -> asyncio.TimerHandle:
            return self.loop.call_later(seconds, self.transport.abort)

        def _clear_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _clear_stalled(self) -> None:
            if self._stalled is not None:
                self._stalled.cancel()
                self._stalled = None

    return Guarded
