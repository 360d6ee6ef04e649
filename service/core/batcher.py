"""The device thread: takes batches from the queue, runs them, hands every tile its own answer or failure.

A failing batch is run again tile by tile, so that a poisoned tile fails only itself. The thread ends when the
device is lost; liveness then fails, and whoever supervises the process starts a new one.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from uepnet.model.count import Tile
from uepnet.model.decode import Maps
from uepnet.model.errors import Cancelled, InferenceError
from uepnet.model.shapes import MAX_BATCH_PIXELS
from uepnet.service.core.tile_queue import DeviceJob, PadShape, QueuedTile, TileQueue
from uepnet.service.metrics import Metrics

# Tiles of one padded shape in, the maps of each out.
RunBatch = Callable[[Sequence[Tile]], list[Maps]]

PROBE_AFTER = 3  # tiles failed in a row; then a blank tile tells whether the device itself is broken

log = logging.getLogger(__name__)


class Batcher:
    def __init__(
        self,
        run: RunBatch,
        shape: PadShape,
        metrics: Metrics,
        max_tiles: int = 1,
        max_pixels: int = MAX_BATCH_PIXELS,
        window_seconds: float = 0.0,
    ) -> None:
        self._run = run
        self._metrics = metrics
        self._queue = TileQueue(shape, metrics, max_tiles, max_pixels, window_seconds)
        self._busy_since: float | None = None
        self._failures = 0
        self._thread = threading.Thread(target=self._loop, name="uepnet-device", daemon=True)
        self._thread.start()

    def open(self, deadline: float, name: str = "") -> DeviceJob:
        """A request's job; `deadline` is on time.monotonic's clock, `name` is for the log."""
        return self._queue.open(deadline, name)

    def retire(self) -> None:
        """Take no new jobs; the thread ends when the last open one has closed."""
        self._queue.retire()

    def stop(self, timeout_seconds: float) -> bool:
        """End now: open jobs fail. Says whether the device thread has ended in time."""
        self._queue.abandon(Cancelled("The service is shutting down."))
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def alive(self, stall_seconds: float) -> bool:
        """Whether the device thread runs and is not stuck in one batch."""
        since = self._busy_since
        return self._thread.is_alive() and (since is None or time.monotonic() - since < stall_seconds)

    def _loop(self) -> None:
        try:
            while batch := self._queue.next_batch():
                self._busy_since = time.monotonic()
                self._run_batch(batch)
                self._busy_since = None
        except Exception:
            log.critical("the device thread has ended", exc_info=True)
        finally:
            self._queue.abandon(InferenceError("The device has stopped."))

    def _run_batch(self, batch: list[QueuedTile]) -> None:
        started = time.monotonic()
        try:
            answers = self._answers([work.tile for work in batch])
        except Exception:
            if len(batch) > 1:
                log.warning("a batch of %d tiles failed; each is tried alone", len(batch), exc_info=True)
                for work in batch:
                    if work.job.error is None:
                        self._run_batch([work])
                return
            log.exception("request %s: a tile of shape %s failed", batch[0].job.name, batch[0].tile.shape)
            self._metrics.tiles.labels("failed").inc()
            self._queue.fail(batch[0], InferenceError("The model failed on this image."))
            self._probe(batch[0].shape)
            return
        seconds = time.monotonic() - started
        self._failures = 0
        self._metrics.batch_seconds.observe(seconds)
        self._metrics.batch_tiles.observe(len(batch))
        self._metrics.tiles.labels("ok").inc(len(batch))
        self._queue.finish(batch, answers, seconds)

    def _answers(self, tiles: list[Tile]) -> list[Maps]:
        answers = self._run(tiles)
        if len(answers) != len(tiles):
            raise InferenceError(f"{len(tiles)} tiles went in, {len(answers)} answers came out.")
        return answers

    def _probe(self, shape: tuple[int, int]) -> None:
        """After failures in a row: a device that cannot run even a blank tile is lost; this thread ends."""
        self._failures += 1
        if self._failures >= PROBE_AFTER:
            self._answers([np.zeros((*shape, 3), np.uint8)])
            self._failures = 0
