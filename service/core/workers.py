"""The threads in which admitted requests work.

Every place has a thread of its own (the pool has max_requests threads), so no request waits for a thread behind
another. Decoding and drawing keep a core busy each, so they take one of a few slots. Which image is next, and who would
wait too long, follows from what each is expected to take. Decoding happens in processes of its own.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from uepnet.model.device import available_cores
from uepnet.model.errors import Cancelled, InferenceError
from uepnet.service.core.admission import Admission
from uepnet.service.core.decode_cost import NO_WORK, CpuWork, WorkCosts, decode_work
from uepnet.service.core.decoders import DecoderPool
from uepnet.service.core.loaded_model import LoadedModel
from uepnet.service.core.slots import CheckWait, Slots, any_wait
from uepnet.service.core.tile_queue import DeviceJob, expired
from uepnet.service.errors import Refused
from uepnet.service.settings import Settings

T = TypeVar("T")


class Workers:
    """Thread: `start`, `run` and `stop` on the event loop, `drawing`, `decode` and `measure` in a request's thread."""

    def __init__(self, settings: Settings, admission: Admission) -> None:
        self._admission = admission
        self._max_pixels = settings.max_pixels
        self._costs = WorkCosts()
        self._pool = ThreadPoolExecutor(settings.max_requests, thread_name_prefix="uepnet-request")
        self.lost = 0  # admitted requests that the end of the service cut off
        self._abandoned: asyncio.Event = asyncio.Event()
        self._decoders = DecoderPool(settings.max_pixels, settings.max_side, settings.decode_seconds)
        self._slots = Slots(settings.decode_threads or available_cores())

    async def start(self) -> None:
        await asyncio.to_thread(self._decoders.start)

    async def run(
        self,
        model: LoadedModel,
        work: Callable[[LoadedModel, DeviceJob], T],
        request_id: str,
        deadline: float,
        gone: "asyncio.Future[None]",
        most: int = 1,
        counts: bool = True,
        expected: bool = False,
        then: Callable[[], None] | None = None,
    ) -> list[T]:
        """Take places for an admitted request and run `work` in a thread each, at most `most`.

        `gone` is done when the client has left.
        `deadline` is on time.monotonic's clock; `counts` is whether the work counts people, and so tells how long the
        next request will wait. `expected` is whether a place has been kept for it, and `then` is called when the last
        place is given back.

        A place is held until its thread has ended, even where the answer went out before: at the deadline, or
        when the client has left. Then the job is cancelled, and the thread ends at the next tile.
        """
        places = self._admission.take_places(most, expected)
        try:
            job = model.batcher.open(deadline, request_id)
        except InferenceError:  # a failing device
            self._admission.give_back(places)
            raise
        loop = asyncio.get_running_loop()
        futures = [loop.run_in_executor(self._pool, work, model, job) for _ in range(places)]
        started, beside, working = loop.time(), self._admission.places_taken, places

        def leave(future: "asyncio.Future[T]") -> None:
            nonlocal working
            working -= 1  # one duration for a request, however many threads it had
            refused = future.cancelled() or isinstance(future.exception(), Refused)  # which tells nothing of the next
            seconds = loop.time() - started if counts and not working and not refused else None
            self._admission.give_back(1, seconds, beside)
            if then is not None and not working:
                then()

        for future in futures:
            future.add_done_callback(leave)
        everyone = asyncio.gather(*futures, return_exceptions=True)
        everyone.add_done_callback(lambda _: job.close())
        abandoned = asyncio.ensure_future(self._abandoned.wait())
        waiting = (everyone, gone, abandoned)
        try:
            await asyncio.wait(waiting, timeout=job.remaining_seconds, return_when=asyncio.FIRST_COMPLETED)
            if everyone.done():
                return [future.result() for future in futures]
            if abandoned.done():
                self.lost += 1
                raise Refused("draining", "The service has ended before the image was counted.", close=True)
            raise Cancelled("The client closed the connection.") if gone.done() else expired()
        finally:
            abandoned.cancel()
            if not everyone.done():
                job.cancel(Cancelled("Nobody waits for the answer any more."))

    @contextmanager
    def drawing(self, pixels: int, job: DeviceJob) -> Iterator[None]:
        """A slot for drawing so many pixels. Nobody is refused any more: the image has been counted."""
        with self._slot(CpuWork("drawing", pixels), job):
            yield

    def decode(self, content: bytes | bytearray, job: DeviceJob) -> tuple[NDArray[np.uint8], float]:
        """The pixels [height, width, 3] of an image file, and how many seconds decoding took."""
        work = decode_work(content, self._max_pixels)
        with self._slot(work, job, self._admission.check_wait):
            started = time.monotonic()
            image = self._decoders.decode(content, job.check)
            return image, time.monotonic() - started

    def measure(self, content: bytes | bytearray, job: DeviceJob) -> int:
        """How many pixels an image file has, by its header."""
        with self._slot(NO_WORK, job):
            return self._decoders.measure(content, job.check)

    @contextmanager
    def _slot(self, work: CpuWork, job: DeviceJob, check_wait: CheckWait = any_wait) -> Iterator[None]:
        """One of the few slots; notes how long it was held."""
        with self._slots.taken(job, lambda: self._costs.expected(work), check_wait):
            started, is_whole = time.monotonic(), False
            try:
                yield
                is_whole = True
            finally:
                self._costs.note(work, time.monotonic() - started, is_whole)

    def abandon(self) -> None:
        """End all that is still running: each request is answered that the service has ended."""
        self._abandoned.set()

    def stop(self) -> None:
        self._decoders.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
