"""What the routes share: the house, the model that serves, the threads that work, the cameras.

Every admitted request has a thread of its own (the pool is as large as the house), so none waits for a thread
behind another. Decoding and drawing use a core each and take one of a few slots.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from fastapi import Request

from uepnet.model.device import available_cores
from uepnet.model.errors import Cancelled, UepnetError
from uepnet.service.admission import House
from uepnet.service.cameras import Cameras
from uepnet.service.engine import Engine, ServedRuntime, load_runtime
from uepnet.service.metrics import Metrics
from uepnet.service.problems import Refused
from uepnet.service.settings import Settings
from uepnet.service.tile_queue import Job, expired

T = TypeVar("T")

log = logging.getLogger(__name__)


class Serving:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.house = House(settings, self.metrics)
        self.cameras = Cameras(settings, self.metrics)
        self.engine: Engine | None = None
        self.failure: UepnetError | None = None  # why there is no engine and will be none
        self._pool = ThreadPoolExecutor(settings.max_requests, thread_name_prefix="uepnet-request")
        self._slots = threading.BoundedSemaphore(settings.decode_threads or available_cores())
        self._reload = asyncio.Lock()
        self.metrics.ready.set_function(lambda: float(self.is_ready))

    @property
    def is_alive(self) -> bool:
        """Still loading counts as alive; a failed load or a lost device does not."""
        if self.engine is None:
            return self.failure is None
        return self.engine.batcher.alive(self.settings.stall_seconds)

    @property
    def is_ready(self) -> bool:
        return self.engine is not None and self.is_alive and not self.house.draining

    def ready_engine(self, counted: bool = True) -> Engine:
        if self.engine is None or not self.is_alive:
            if counted:
                self.metrics.reject("not_ready")
            raise Refused("not-ready", "The model is not loaded yet, or its device has failed.")
        return self.engine

    def check_open(self) -> None:
        """Refuse a count at once, before its body is read, where it could not be admitted anyway."""
        self.ready_engine()
        self.house.check_open()

    async def start(self, runtime: ServedRuntime | None) -> None:
        """Load the model; a failure is kept in `failure` for whoever runs the server."""
        try:
            if runtime is None:
                runtime = await asyncio.to_thread(load_runtime, self.settings, self.settings.model)
        except UepnetError as error:
            log.critical("the model cannot be served: %s", error)
            self.failure = error
            return
        self._serve(Engine(runtime, self.settings, self.metrics))
        self.metrics.watch_device_memory(lambda: self.engine.runtime.device_memory() if self.engine else None)

    async def reload(self, path: str | None) -> Engine:
        """Load another model beside the one that serves, then swap. A model that cannot run changes nothing."""
        directory = self._allowed(path)
        if self._reload.locked():
            raise Refused("reload-under-way", "Wait until the other reload has finished.")
        async with self._reload:
            try:
                runtime = await asyncio.to_thread(load_runtime, self.settings, directory)
            except UepnetError:
                self.metrics.reloads.labels("refused").inc()
                raise
            old = self.engine
            engine = Engine(runtime, self.settings, self.metrics)
            self._serve(engine)
            if old is not None:
                old.batcher.retire()  # requests under way finish on it
            self.metrics.reloads.labels("swapped").inc()
            return engine

    def _serve(self, engine: Engine) -> None:
        self.engine = engine
        engine.show(self.metrics)
        log.info("serving %s %s", engine.artifact.name, engine.artifact.version)

    def _allowed(self, path: str | None) -> Path | None:
        """The directory to load: the configured one, or one below models_dir, links followed."""
        configured, models_dir = self.settings.model, self.settings.models_dir
        if path is None:
            return configured
        if "\0" not in path:
            asked = Path(path) if models_dir is None else models_dir / path
            if configured is not None and asked.resolve() == configured.resolve():
                return configured
            if models_dir is not None and asked.resolve().is_relative_to(models_dir.resolve()):
                return asked
        raise Refused("model-refused", "The path must be the configured model or lie below models_dir.")

    async def run(self, request: Request, work: Callable[[Engine, Job], T], most: int = 1) -> list[T]:
        """Admit a request and run `work` in a thread, or in up to `most` threads that share the work.

        A place is held until its thread has ended, even where the answer went out before: at the deadline, or
        when the client has gone. Then the job is cancelled, and the thread ends at the next tile.
        """
        engine = self.ready_engine()
        self.house.check_open()
        # Before the places are taken: a device that fails at this very moment refuses, and none may be lost.
        job = engine.batcher.open(time.monotonic() + self.settings.deadline_seconds, request.state.request_id)
        places = self.house.take(most)
        loop = asyncio.get_running_loop()
        futures = [loop.run_in_executor(self._pool, work, engine, job) for _ in range(places)]
        for future in futures:
            future.add_done_callback(self._leave)
        everyone = asyncio.gather(*futures, return_exceptions=True)
        everyone.add_done_callback(lambda _: job.close())
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((everyone, gone), timeout=job.remaining_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not everyone.done():
                raise Cancelled("The client went away.") if gone.done() else expired()
            return [future.result() for future in futures]
        finally:
            gone.cancel()
            if not everyone.done():
                job.cancel(Cancelled("Nobody waits for the answer any more."))

    def _leave(self, future: "asyncio.Future[T]") -> None:
        self.house.give_back()

    @contextmanager
    def slot(self, job: Job) -> Iterator[None]:
        """One of the few cores' worth of decoding and drawing; called in a request's thread."""
        if not self._slots.acquire(timeout=max(0.0, job.remaining_seconds)):
            raise expired()
        try:
            job.check()
            yield
        finally:
            self._slots.release()

    async def drain(self) -> None:
        """Take no more requests; return when those under way have finished, or at the limit."""
        self.house.draining = True
        self.cameras.end_streams()
        try:
            async with asyncio.timeout(self.settings.drain_seconds):
                await self.house.wait_until_quiet()
        except TimeoutError:
            log.warning("requests were still under way after %g seconds", self.settings.drain_seconds)

    async def stop(self) -> None:
        self.house.draining = True
        self.cameras.end_streams()
        if self.engine is not None:
            await asyncio.to_thread(self.engine.batcher.stop, 5.0)
        self._pool.shutdown(wait=False, cancel_futures=True)


async def _gone(request: Request) -> None:
    """Returns when the client has closed the connection; the body must have been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
