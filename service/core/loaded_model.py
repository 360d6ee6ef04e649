"""One loaded model, warmed up, with its device thread."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from uepnet.model.artifact import Artifact, Precision
from uepnet.model.count import Tile
from uepnet.model.decode import Maps
from uepnet.service.batcher import Batcher
from uepnet.service.metrics import Metrics
from uepnet.service.schemas import ModelAnswer, ModelSummary
from uepnet.service.settings import Settings


class ServedRuntime(Protocol):
    """What the service needs of `model.runtime.Runtime`; a seam for measuring the service without a network."""

    artifact: Artifact
    device: str
    provider: str
    precision: Precision
    fallback: str | None

    @property
    def batch_sizes(self) -> tuple[int, ...]: ...
    def padded_shape(self, height: int, width: int) -> tuple[int, int]: ...
    def run(self, tiles: Sequence[Tile]) -> list[Maps]: ...
    def warm_up(self) -> None: ...
    def device_memory(self) -> tuple[int, int] | None: ...


class Engine:
    def __init__(self, runtime: ServedRuntime, settings: Settings, metrics: Metrics) -> None:
        self.runtime = runtime
        self.artifact = runtime.artifact
        self.loaded_at = time.time()
        self.batcher = Batcher(
            runtime.run,
            runtime.padded_shape,
            metrics,
            max_tiles=min(settings.max_batch_tiles, runtime.batch_sizes[-1]),
            max_pixels=settings.max_batch_pixels,
            window_seconds=settings.batch_window_seconds,
        )
        self.summary = ModelSummary(
            name=self.artifact.name,
            version=self.artifact.version,
            precision=runtime.precision,
            device=runtime.device,
        )

    def describe(self) -> ModelAnswer:
        return ModelAnswer(
            **self.summary.model_dump(),
            provider=self.runtime.provider,
            fallback=self.runtime.fallback,
            batch_sizes=list(self.runtime.batch_sizes),
            loaded_at=self.loaded_at,
            metrics=self.artifact.metrics,
            artifact=self.artifact.model_dump(mode="json"),
        )

    def show(self, metrics: Metrics) -> None:
        """Make this the model that the metrics speak of."""
        labels = self.summary.model_dump()
        metrics.model.info({**labels, "provider": self.runtime.provider})
        metrics.fallback.set(self.runtime.fallback is not None)


def load_runtime(settings: Settings, directory: Path | None) -> ServedRuntime:
    """A model directory (None: the bundled one) on the configured device, warmed up. Takes seconds."""
    from uepnet.model.runtime import Runtime

    runtime = Runtime(
        directory,
        device=settings.device,
        precision=settings.precision,
        threads=settings.threads,
        max_batch=settings.max_batch_tiles,
        max_batch_pixels=settings.max_batch_pixels,
    )
    runtime.warm_up()
    return runtime
