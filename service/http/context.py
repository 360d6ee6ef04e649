"""What a route needs: the parts of the app (`AppState`) and the request at hand (`RequestContext`).

The middleware makes one `RequestContext` per request; a route gets it by declaring a parameter `context: Context`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from uepnet.service.cameras.control_room import ControlRoom
from uepnet.service.cameras.wire import CameraStates
from uepnet.service.core.admission import Admission
from uepnet.service.core.counting import Counting
from uepnet.service.core.current_model import CurrentModel
from uepnet.service.core.loaded_model import InferenceRuntime, LoadedModel
from uepnet.service.core.tile_queue import DeviceJob
from uepnet.service.core.workers import Workers
from uepnet.service.errors import Refused
from uepnet.service.http.body import received
from uepnet.service.metrics import Metrics
from uepnet.service.schemas import Problem
from uepnet.service.settings import Settings
from uepnet.service.shared_answer import SharedAnswer

T = TypeVar("T")

ANSWERS_AT_ONCE = 3  # that need a thread; asyncio's pool has five and more, and the cameras' limits need one
SCOPE_KEY = "uepnet.context"  # where the middleware keeps the context in the ASGI scope

log = logging.getLogger(__name__)


class AppState:
    """The parts of one app, and its life cycle. Thread: every method runs on the event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.admission = Admission(settings, self.metrics)
        self.room = ControlRoom(settings, self.metrics)
        self.cameras = self.room.cameras
        self.model = CurrentModel(settings, self.metrics)
        self.workers = Workers(settings, self.admission)
        self.cut_off = 0  # admitted requests whose answers the end of the server cut off
        self.camera_states = SharedAnswer(self._camera_states)
        self._answering = asyncio.Semaphore(ANSWERS_AT_ONCE)
        self.metrics.ready.set_function(lambda: float(self.is_ready))

    @property
    def is_ready(self) -> bool:
        return self.model.is_ready and not self.admission.draining

    async def start(self, runtime: InferenceRuntime | None) -> None:
        await self.workers.start()
        await self.model.start(runtime)

    async def answer(self, work: Callable[[], T]) -> T:
        """Make an answer that needs no inference in a thread. Few run at once, so that limits are still evaluated."""
        async with self._answering:
            return await asyncio.to_thread(work)

    async def _camera_states(self) -> bytes:
        states = CameraStates(cameras=self.room.states())
        return await self.answer(lambda: states.model_dump_json().encode())

    async def drain(self) -> None:
        """Admit no more requests; return when the admitted ones have finished, or at the limit."""
        self._close_admission()
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                await self.admission.wait_until_idle()
        except TimeoutError:
            self.workers.abandon()
            await asyncio.sleep(0.1)  # for each to be answered
            lost, seconds = self.workers.lost, self.settings.drain_seconds
            log.error("%d admitted requests were lost: they were still running after %g seconds", lost, seconds)

    async def stop(self) -> None:
        self._close_admission()
        await self.model.stop()
        self.workers.stop()
        self.metrics.close()

    def _close_admission(self) -> None:
        self.admission.draining = True
        self.cameras.end_streams()


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request, from its first byte to its log line.

    Thread: the event loop; `reserve` and `give_back` run in the request's threads, too.
    """

    app: AppState
    scope: Scope
    receive: Receive
    request_id: str
    started: float  # on time.monotonic's clock
    admitted: bool = False  # it has held a place, and is to be answered also in a drain
    expects_place: bool = False  # one is kept for its next step
    ended: bool = False
    key: str = ""  # the key it came with: admin, api-1, api-2...; empty for none
    deadline: float | None = None  # on time.monotonic's clock; None before the request has taken a place
    bytes_in: int = 0
    reserved_bytes: int = 0  # of the memory budget, for the answer
    log_fields: dict[str, Any] = field(default_factory=dict)  # what the route adds to the request's log line

    def reserve(self, size: int) -> None:
        """Reserve memory for the answer before it is made; given back when the request ends. Runs on any thread."""
        self.app.admission.reserve_bytes(size)
        self.reserved_bytes += size

    def give_back(self, size: int) -> None:
        self.app.admission.count_bytes(-size)
        self.reserved_bytes -= size

    @property
    def is_admin(self) -> bool:
        return self.key == "admin"

    @property
    def client(self) -> str:
        """The address it came from."""
        return self.scope["client"][0] if self.scope.get("client") else ""

    def note_problem(self, told: Problem) -> None:
        """Have the log line say why the request failed."""
        self.log_fields |= {"problem": told.type.rpartition(":")[2], "reason": told.detail}

    @property
    def headers(self) -> Headers:
        return Headers(scope=self.scope)

    @asynccontextmanager
    async def body(self) -> AsyncIterator[bytes]:
        """The body of a request that counts: refused at once where it could not be admitted anyway."""
        self.app.model.ready()
        self.app.admission.check_place()
        async with received(self) as content:
            yield content

    @asynccontextmanager
    async def small_body(self, max_bytes: int = 65_536) -> AsyncIterator[bytes]:
        """The body of a request that needs no place."""
        self.app.admission.check_draining()
        async with received(self, max_bytes) as content:
            yield content

    async def run(self, work: Callable[[Counting], T], most: int = 1, counts: bool = True) -> list[T]:
        """Be admitted, take a place and run `work` in a thread, or in up to `most` threads that share the work."""
        app = self.app
        if not self.admitted:
            app.admission.admit()
            self.admitted = True

        def in_thread(model: LoadedModel, job: DeviceJob) -> T:
            return work(Counting(app.settings, app.metrics, app.workers, model, job))

        model = app.model.ready()
        expected, self.expects_place = self.expects_place, False
        then = None if counts else self._expect_place  # a step that counts nobody is followed by one that does
        gone = asyncio.ensure_future(self._disconnected())
        try:
            return await app.workers.run(
                model, in_thread, self.request_id, self._deadline(), gone, most, counts, expected, then
            )
        finally:
            gone.cancel()

    def end(self) -> None:
        """Give back what the request still holds."""
        self.ended = True
        self.give_back(self.reserved_bytes)
        if self.expects_place:
            self.app.admission.expect_no_more()
        if self.admitted:
            self.app.admission.finish()

    def _expect_place(self) -> None:
        if not self.ended:  # it may have been answered before its thread ended
            self.expects_place = True
            self.app.admission.expect()

    def _deadline(self) -> float:
        """The same for all that a request runs; it starts when the request first takes a place."""
        if self.deadline is None:
            self.deadline = time.monotonic() + self.app.settings.deadline_seconds
        return self.deadline

    async def _disconnected(self) -> None:
        """Returns when the client has closed the connection; the body must have been read before."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


def context_of(scope: Scope) -> RequestContext:
    context: RequestContext = scope[SCOPE_KEY]
    return context


async def _request_context(request: Request) -> RequestContext:
    return context_of(request.scope)


async def known_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not have, or has once: they would be ignored in silence."""
    route = request.scope["route"]
    if not isinstance(route, APIRoute) or not request.url.path.startswith("/v1/"):
        return
    known = [parameter.alias for parameter in route.dependant.query_params]
    for name in request.query_params:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(known) or 'none'}."
            raise Refused("wrong-request", f"The query parameter {name[:64]!r} is not known; {hint}")
        if len(request.query_params.getlist(name)) > 1:
            raise Refused("wrong-request", f"The query parameter {name!r} is there more than once.")


Context = Annotated[RequestContext, Depends(_request_context)]
