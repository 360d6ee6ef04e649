"""Whose tile is next: a fair, bounded queue between requests and the device.

A request opens a `DeviceJob`; the job's `run_tiles` is what `count_image` runs its tiles through. A batch is formed
by going round the jobs and taking one tile of each, so a request of one tile never waits behind all tiles of
a large one. Only tiles of one padded shape share a batch, within a budget of tiles and pixels.

The queue is bounded by construction: admission bounds the jobs, and a job has at most `ahead` tiles cut and
waiting. QueuedTile whose deadline has passed or whose client has gone is dropped before it costs inference.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from uepnet.model.count import Tile
from uepnet.model.decode import Maps
from uepnet.model.errors import DeadlineExceeded, InferenceError
from uepnet.service.metrics import Metrics

# (height, width) -> the shape in which a tile reaches the device.
PadShape = Callable[[int, int], tuple[int, int]]


@dataclass(slots=True)
class DeviceTiming:
    """Where an image's time went, in seconds; a batch counts once however many of its tiles were in it."""

    waited: float = 0.0
    inference: float = 0.0

    @property
    def queue(self) -> float:
        return max(0.0, self.waited - self.inference)


@dataclass(slots=True, eq=False)
class QueuedTile:
    """One tile on its way. `maps` or `error` is set when it is done."""

    job: "DeviceJob"
    tile: Tile
    shape: tuple[int, int]
    timing: DeviceTiming
    maps: Maps | None = None
    error: InferenceError | None = None

    @property
    def done(self) -> bool:
        return self.maps is not None or self.error is not None


class DeviceJob:
    """One request's claim on the device. Several threads may run images through it; they share its turn."""

    def __init__(self, queue: "TileQueue", deadline: float, name: str) -> None:
        self.deadline = deadline  # on time.monotonic's clock
        self.name = name
        self.error: InferenceError | None = None  # why nobody waits any more
        self.waiting: deque[QueuedTile] = deque()
        self.changed = threading.Condition(queue.lock)
        self._queue = queue

    def close(self) -> None:
        """The request is over; to be called once all its threads have ended."""
        self._queue.close(self)

    @property
    def remaining_seconds(self) -> float:
        return self.deadline - time.monotonic()

    def check(self) -> None:
        """Raise where the work has become pointless."""
        if self.remaining_seconds <= 0:
            self.cancel(expired())
        if self.error is not None:
            raise self.error

    def cancel(self, error: InferenceError) -> None:
        """End the job: its tiles are dropped, whoever waits for them gets the error. The first one stays."""
        self._queue.cancel(self, error)

    def run_tiles(self, tiles: Iterator[Tile], timing: DeviceTiming) -> Iterator[Maps]:
        """With `timing` bound, a RunTiles: cuts a tile only when there is room for it ahead of the device."""
        queue = self._queue
        pending: deque[QueuedTile] = deque()
        try:
            while True:
                fresh = [
                    QueuedTile(self, tile, queue.shape(tile.shape[0], tile.shape[1]), timing)
                    for tile in islice(tiles, queue.ahead - len(pending))
                ]
                pending.extend(fresh)
                queue.submit(self, fresh)
                if not pending:
                    return
                yield queue.wait(pending.popleft())
        finally:
            queue.withdraw(self, pending)


class TileQueue:
    """The jobs that wait for one device. All state is guarded by `lock`; names with _ are called under it."""

    def __init__(
        self, shape: PadShape, metrics: Metrics, max_tiles: int, max_pixels: int, window_seconds: float
    ) -> None:
        self.shape = shape
        self.ahead = 2 * max_tiles  # one batch on the device, the next one ready
        self.lock = threading.Lock()
        self._metrics = metrics
        self._max_tiles = max_tiles
        self._max_pixels = max_pixels
        # Where batches cannot grow there is nothing to wait for.
        self._window_seconds = window_seconds if max_tiles > 1 else 0.0
        self._arrived = threading.Condition(self.lock)
        self._jobs: set[DeviceJob] = set()
        self._ring: deque[DeviceJob] = deque()  # jobs with waiting tiles, the next one first
        self._retired = False

    def open(self, deadline: float, name: str) -> DeviceJob:
        with self.lock:
            if self._retired:
                raise InferenceError("This model no longer takes requests.")
            job = DeviceJob(self, deadline, name)
            self._jobs.add(job)
            return job

    def close(self, job: DeviceJob) -> None:
        with self.lock:
            self._drop(job, list(job.waiting))
            self._jobs.discard(job)
            self._arrived.notify()

    def retire(self) -> None:
        """Take no new jobs; `next_batch` ends when the last open one has closed."""
        with self.lock:
            self._retired = True
            self._arrived.notify()

    def abandon(self, error: InferenceError) -> None:
        """Fail all open jobs and take no new ones."""
        with self.lock:
            self._retired = True
            for job in self._jobs:
                self._cancel(job, error)
            self._jobs.clear()
            self._arrived.notify()

    def submit(self, job: DeviceJob, works: Sequence[QueuedTile]) -> None:
        with self.lock:
            if job.error is not None:
                raise job.error
            if works and not job.waiting:
                self._ring.append(job)
            job.waiting.extend(works)
            self._metrics.queue_tiles.inc(len(works))
            self._arrived.notify()

    def wait(self, work: QueuedTile) -> Maps:
        job, started = work.job, time.monotonic()
        with self.lock:
            while not work.done and job.error is None:
                remaining = job.remaining_seconds
                if remaining <= 0:
                    self._cancel(job, expired())
                else:
                    job.changed.wait(remaining)
            work.timing.waited += time.monotonic() - started
            if work.maps is not None:
                return work.maps
            error = work.error or job.error
            assert error is not None
            raise error

    def withdraw(self, job: DeviceJob, works: Sequence[QueuedTile]) -> None:
        """Take back tiles whose answers nobody will read."""
        with self.lock:
            self._drop(job, [work for work in works if work in job.waiting])

    def cancel(self, job: DeviceJob, error: InferenceError) -> None:
        with self.lock:
            self._cancel(job, error)

    def next_batch(self) -> list[QueuedTile]:
        """The next tiles to run together, as soon as there are any; empty when there will never be."""
        with self.lock:
            while True:
                if not self._ring:
                    if self._retired and not self._jobs:
                        return []
                    self._arrived.wait()
                    self._linger()
                elif batch := self._form():
                    return batch

    def finish(self, batch: Sequence[QueuedTile], answers: Sequence[Maps], seconds: float) -> None:
        with self.lock:
            for timing in {id(work.timing): work.timing for work in batch}.values():
                timing.inference += seconds
            for work, maps in zip(batch, answers, strict=True):
                work.maps = maps
                work.job.changed.notify_all()

    def fail(self, work: QueuedTile, error: InferenceError) -> None:
        with self.lock:
            work.error = error
            work.job.changed.notify_all()

    def _linger(self) -> None:
        """An idle device waits a moment for a fuller batch, while there are jobs that may bring tiles."""
        until = time.monotonic() + self._window_seconds
        while (
            0 < len(self._ring) < len(self._jobs)
            and sum(len(job.waiting) for job in self._ring) < self._max_tiles
            and (left := until - time.monotonic()) > 0
        ):
            self._arrived.wait(left)

    def _form(self) -> list[QueuedTile]:
        """Go round the jobs, one tile each, all of the first one's shape, until the budget is used up."""
        batch: list[QueuedTile] = []
        passed_over: list[DeviceJob] = []
        most = self._max_tiles
        while self._ring and len(batch) < most:
            job = self._ring[0]
            if job.remaining_seconds <= 0:
                self._cancel(job, expired())
                continue
            self._ring.popleft()
            if batch and job.waiting[0].shape != batch[0].shape:
                passed_over.append(job)
                continue
            work = job.waiting.popleft()
            if not batch:
                height, width = work.shape
                most = max(1, min(self._max_tiles, self._max_pixels // (height * width)))
            batch.append(work)
            if job.waiting:
                self._ring.append(job)
        self._ring.extendleft(reversed(passed_over))
        self._metrics.queue_tiles.dec(len(batch))
        return batch

    def _cancel(self, job: DeviceJob, error: InferenceError) -> None:
        if job.error is None:
            job.error = error
        self._drop(job, list(job.waiting))
        job.changed.notify_all()

    def _drop(self, job: DeviceJob, works: Sequence[QueuedTile]) -> None:
        if not works:
            return
        for work in works:
            job.waiting.remove(work)
        if not job.waiting:
            self._ring.remove(job)
        self._metrics.queue_tiles.dec(len(works))
        self._metrics.tiles.labels("dropped").inc(len(works))


def expired() -> DeadlineExceeded:
    return DeadlineExceeded("The image was not counted before its deadline.")
