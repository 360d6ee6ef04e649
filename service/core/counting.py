"""The work of an admitted request, done in its own thread: bytes -> pixels -> count."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Decoding
from uepnet.model.count import Count, count_image
from uepnet.model.errors import ImageTooLarge, InferenceError, UepnetError
from uepnet.model.zones import Zone, blacked_out
from uepnet.service.core.loaded_model import LoadedModel
from uepnet.service.core.slots import CHECK_SECONDS
from uepnet.service.core.tile_queue import DeviceJob, DeviceTiming
from uepnet.service.core.workers import Workers
from uepnet.service.metrics import Metrics
from uepnet.service.schemas import CountAnswer, Timings
from uepnet.service.settings import Settings


@dataclass(frozen=True, slots=True, eq=False)
class ImageResult:
    """A count and where its time went. It holds no pixels: a batch keeps many of these until its end."""

    count: Count
    model: LoadedModel
    decode_seconds: float
    queue_seconds: float
    inference_seconds: float

    def timings(self, started: float) -> Timings:
        """In milliseconds; `started` on time.monotonic's clock."""
        total = time.monotonic() - started
        seconds = (self.decode_seconds, self.queue_seconds, self.inference_seconds, total)
        decode, queue, inference, total = (round(1000 * value, 3) for value in seconds)
        return Timings(decode=decode, queue=queue, inference=inference, total=total)

    def answer(self, started: float, request_id: str, with_map: bool = False) -> CountAnswer:
        return CountAnswer.of(self.count, self.model.summary, self.timings(started), request_id, with_map)


@dataclass(frozen=True, slots=True)
class Counting:
    """What counting an image takes. Thread: made and used in a request's thread."""

    settings: Settings
    metrics: Metrics
    workers: Workers
    model: LoadedModel
    job: DeviceJob

    def count_bytes(
        self,
        content: bytes | bytearray,
        zones: Sequence[Zone] = (),
        masks: Sequence[Zone] = (),
        decoding: Decoding | None = None,
    ) -> tuple[ImageResult, NDArray[np.uint8]]:
        """The count, and the image [height, width, 3] for drawing on it; masks are black in it."""
        image, decode_seconds = self._decode(content)
        image = blacked_out(image, masks)
        self.job.check()
        # All passes over the image share the job, so they share its deadline and its cancellation.
        timing = DeviceTiming()
        count = count_image(image, self.model.read_by(decoding), partial(self.job.run_tiles, timing=timing), zones)
        self.metrics.decode_seconds.observe(decode_seconds)
        self.metrics.queue_seconds.observe(timing.queue)
        self.metrics.inference_seconds.observe(timing.inference)
        self.metrics.images.inc()
        self.metrics.people.inc(count.count)
        return ImageResult(count, self.model, decode_seconds, timing.queue, timing.inference), image

    def drawing(self, pixels: int) -> AbstractContextManager[None]:
        """For work on the image after it has been counted, which keeps a core busy."""
        return self.workers.drawing(pixels, self.job)

    def pixels(self, content: bytes | bytearray) -> int:
        """How many pixels an image file has, by its header."""
        with self._noting_too_large():
            return self.workers.measure(content, self.job)

    def _decode(self, content: bytes | bytearray) -> tuple[NDArray[np.uint8], float]:
        """The pixels, and how many seconds decoding took."""
        with self._noting_too_large():
            return self.workers.decode(content, self.job)

    @contextmanager
    def _noting_too_large(self) -> Iterator[None]:
        try:
            yield
        except ImageTooLarge:
            self.metrics.reject("too_many_pixels")
            raise


class PixelRoom:
    """Bounds the pixels that the images of one request take at once. Thread: used by the request's threads."""

    def __init__(self, pixels: int) -> None:
        self._free = pixels
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, pixels: int, job: DeviceJob) -> Iterator[None]:
        with self._changed:
            while pixels > self._free:
                self._changed.wait(CHECK_SECONDS)
                job.check()
            self._free -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._free += pixels
                self._changed.notify_all()


class ImageBatch:
    """Several images that several threads work off; a wrong image fails alone.

    Those that are in memory at once have no more pixels together than one image may have: many small files can hold as
    many large images.
    """

    def __init__(
        self,
        contents: Sequence[bytes | bytearray],
        max_pixels: int,
        zones: Sequence[Zone] = (),
        decoding: Decoding | None = None,
    ) -> None:
        self.results: list[ImageResult | UepnetError] = [InferenceError("not counted")] * len(contents)
        self._contents = contents
        self._zones = zones
        self._decoding = decoding
        self._todo = deque(range(len(contents)))
        self._room = PixelRoom(max_pixels)

    def work_off(self, counting: Counting) -> None:
        """The share of one thread: takes the next image until none is left. Thread: a request's."""
        while True:
            try:
                index = self._todo.popleft()
            except IndexError:
                return
            try:
                self.results[index] = self._count(counting, self._contents[index])
            except UepnetError as error:
                counting.job.check()  # past the deadline, or the client left: the request as a whole has failed
                self.results[index] = error

    def _count(self, counting: Counting, content: bytes | bytearray) -> ImageResult:
        pixels = counting.pixels(content) if len(self._contents) > 1 else 0
        with self._room.taken(pixels, counting.job):
            return counting.count_bytes(content, self._zones, decoding=self._decoding)[0]
