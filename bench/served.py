"""A service in a process of its own, for measuring: with the real model, or with a device that only sleeps."""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from uepnet.model.artifact import Artifact, EngineName, Precision
from uepnet.model.count import Tile
from uepnet.model.decode import Maps

CROWDED = 0.25  # people per cell: so many that any model looks again, larger


class SleepingRuntime:
    """In place of the network: every batch takes the same time and uses no core.

    It counts nobody, or finds a crowd in the lower half of each tile: then a model that chooses its scales looks at
    half of what it saw again, larger, as it does for a square full of people below a skyline.
    """

    device = "cpu"
    engine: EngineName = "onnxruntime"
    engine_version = "none"
    provider = "none"
    precision: Precision = "fp32"
    fallback: str | None = None

    def __init__(
        self, artifact: Artifact, seconds: float, batch_sizes: tuple[int, ...] = (1,), crowded: bool = False
    ) -> None:
        self.artifact = artifact
        self.batch_sizes = batch_sizes
        self._seconds = seconds
        self._people = CROWDED if crowded else 0.0

    def padded_shape(self, height: int, width: int) -> tuple[int, int]:
        return height, width

    def run(self, tiles: Sequence[Tile]) -> list[Maps]:
        time.sleep(self._seconds)
        return [self._maps(tile) for tile in tiles]

    def warm_up(self) -> None:
        pass

    def device_memory(self) -> None:
        return None

    def run_tiles(self, tiles: Iterator[Tile]) -> Iterator[Maps]:
        for tile in tiles:
            yield from self.run([tile])

    def _maps(self, tile: Tile) -> Maps:
        rows, columns = (-(-side // self.artifact.cell) for side in tile.shape[:2])
        counts = np.zeros((rows, columns), np.float32)
        counts[rows // 2 :] = self._people
        classes = tuple((counts > 0).astype(np.uint8) for _ in self.artifact.heads)
        return Maps(classes, counts, np.zeros_like(counts))


@contextmanager
def served(model: Path | None, sleep_seconds: float | None = None, **settings: Any) -> Iterator[str]:
    """The URL of a ready service; with `sleep_seconds` its device only sleeps."""
    with service_process(model, sleep_seconds, **settings) as (url, _):
        yield url


@contextmanager
def service_process(
    model: Path | None, sleep_seconds: float | None = None, crowded: bool = False, **settings: Any
) -> Iterator[tuple[str, int]]:
    """The URL of a ready service and its process id."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, model, sleep_seconds, crowded, settings), daemon=True)
    process.start()
    try:
        yield str(ours.recv()), int(process.pid or 0)
    finally:
        process.terminate()
        process.join(30)


def serve(
    pipe: Connection, model: Path | None, sleep_seconds: float | None, crowded: bool, settings: dict[str, Any]
) -> None:
    import threading

    from uepnet.model.runtime import BUNDLED
    from uepnet.service.http.server import HttpServer, bind
    from uepnet.service.memory import return_large_blocks
    from uepnet.service.settings import Settings

    return_large_blocks()  # as `uepnet serve` does
    chosen = Settings(port=0, model=model, **settings)
    runtime = None
    if sleep_seconds is not None:
        runtime = SleepingRuntime(Artifact.load(model or BUNDLED), sleep_seconds, crowded=crowded)
    listener = bind(chosen)
    server = HttpServer(chosen, runtime)

    def tell() -> None:
        while not server.state.is_ready:
            time.sleep(0.05)
        pipe.send(f"http://127.0.0.1:{listener.getsockname()[1]}")

    threading.Thread(target=tell, daemon=True).start()
    server.start(listener)
    server.join()
