"""The work of an admitted request, done in its own thread: bytes -> pixels -> count."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uepnet.model.count import Count, count_image
from uepnet.model.errors import ImageTooLarge, InferenceError, UepnetError
from uepnet.model.image import load_image
from uepnet.model.zones import Zone
from uepnet.service.engine import Engine
from uepnet.service.schemas import CountAnswer, Timings
from uepnet.service.serving import Serving
from uepnet.service.tile_queue import Job, Timing


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A count and where its time went. The pixels are not in it: a batch keeps many of these till its end."""

    count: Count
    engine: Engine
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
        return CountAnswer.of(self.count, self.engine.summary, self.timings(started), request_id, with_map)


def count_bytes(
    serving: Serving, engine: Engine, job: Job, content: bytes | bytearray, zones: Sequence[Zone] = ()
) -> tuple[Counted, NDArray[np.uint8]]:
    """The count, and the image [height, width, 3] for whoever draws on it."""
    metrics = serving.metrics
    with serving.slot(job):
        started = time.monotonic()
        try:
            image = load_image(bytes(content), serving.settings.max_pixels)
        except ImageTooLarge:
            metrics.reject("too_many_pixels")
            raise
        decode_seconds = time.monotonic() - started
    job.check()
    timing = Timing()
    count = count_image(image, engine.artifact, partial(job.run_tiles, timing=timing), zones)
    metrics.decode_seconds.observe(decode_seconds)
    metrics.queue_seconds.observe(timing.queue)
    metrics.inference_seconds.observe(timing.inference)
    metrics.images.inc()
    metrics.people.inc(count.count)
    return Counted(count, engine, decode_seconds, timing.queue, timing.inference), image


class Many:
    """Several images that several threads work off; a wrong image spoils its own entry alone."""

    def __init__(self, serving: Serving, contents: Sequence[bytes | bytearray], zones: Sequence[Zone] = ()) -> None:
        self.results: list[Counted | UepnetError] = [InferenceError("not counted")] * len(contents)
        self._serving = serving
        self._contents = contents
        self._zones = zones
        self._todo = deque(range(len(contents)))

    def work(self, engine: Engine, job: Job) -> None:
        """One thread's share: takes the next image until there is none."""
        while True:
            try:
                index = self._todo.popleft()
            except IndexError:
                return
            try:
                self.results[index] = count_bytes(self._serving, engine, job, self._contents[index], self._zones)[0]
            except UepnetError as error:
                job.check()  # no deadline or client left: the request as a whole has failed
                self.results[index] = error
