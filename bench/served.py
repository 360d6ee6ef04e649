"""A service in a process of its own, for measuring: with the real model, or with a device that only sleeps."""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from uepnet.model.artifact import Artifact, Precision
from uepnet.model.count import Tile
from uepnet.model.decode import Maps


class SleepingRuntime:
    """In place of the network: every batch takes the same time and no core, and counts nothing."""

    device = "cpu"
    provider = "none"
    precision: Precision = "fp32"
    fallback: str | None = None

    def __init__(self, artifact: Artifact, seconds: float, batch_sizes: tuple[int, ...]) -> None:
        self.artifact = artifact
        self.batch_sizes = batch_sizes
        self._seconds = seconds

    def padded_shape(self, height: int, width: int) -> tuple[int, int]:
        return height, width

    def run(self, tiles: Sequence[Tile]) -> list[Maps]:
        time.sleep(self._seconds)
        return [self._nobody(tile) for tile in tiles]

    def warm_up(self) -> None:
        pass

    def device_memory(self) -> None:
        return None

    def _nobody(self, tile: Tile) -> Maps:
        rows, columns = (side // self.artifact.cell for side in tile.shape[:2])
        zeros = np.zeros((rows, columns), np.float32)
        classes = tuple(zeros.astype(np.uint8) for _ in self.artifact.heads)
        return Maps(classes, zeros, zeros)


@contextmanager
def served(model: Path | None, sleep_seconds: float | None = None, batch: int = 1, **settings: Any) -> Iterator[str]:
    """The URL of a ready service; with `sleep_seconds` its device only sleeps."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, model, sleep_seconds, batch, settings), daemon=True)
    process.start()
    try:
        yield str(ours.recv())
    finally:
        process.terminate()
        process.join(30)


def _serve(
    pipe: Connection, model: Path | None, sleep_seconds: float | None, batch: int, settings: dict[str, Any]
) -> None:
    import threading

    from uepnet.model.runtime import BUNDLED
    from uepnet.service.server import Server, bind
    from uepnet.service.settings import Settings

    chosen = Settings(port=0, model=model, **settings)
    runtime = None
    if sleep_seconds is not None:
        sizes = tuple(size for size in (1, 2, 4, 8, 16, 32) if size <= batch)
        runtime = SleepingRuntime(Artifact.load(model or BUNDLED), sleep_seconds, sizes)
    listener = bind(chosen)
    server = Server(chosen, runtime)

    def tell() -> None:
        while not server.serving.is_ready:
            time.sleep(0.05)
        pipe.send(f"http://127.0.0.1:{listener.getsockname()[1]}")

    threading.Thread(target=tell, daemon=True).start()
    server.run(sockets=[listener])
