"""One loaded model, warmed up, with its device thread."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from uepnet.model.artifact import Artifact, Decoding, EngineName, Precision
from uepnet.model.count import Tile
from uepnet.model.decode import Maps
from uepnet.model.errors import ModelError
from uepnet.service.core.batcher import Batcher
from uepnet.service.metrics import Metrics
from uepnet.service.schemas import ModelAnswer, ModelSummary
from uepnet.service.settings import Settings


class InferenceRuntime(Protocol):
    """What the service needs of `model.runtime.Runtime`; a seam for measuring the service without a network."""

    artifact: Artifact
    engine: EngineName
    engine_version: str
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


class LoadedModel:
    """Thread: made on the event loop; its batcher has a thread of its own."""

    def __init__(self, runtime: InferenceRuntime, settings: Settings, metrics: Metrics) -> None:
        self.runtime = runtime
        self.artifact = runtime.artifact.read_by(_decoding(settings))
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

    def read_by(self, decoding: Decoding | None) -> Artifact:
        """The artifact with the decoding that a request asks for; None is the configured one."""
        return self.artifact if decoding is None else self.runtime.artifact.read_by(decoding)

    def describe(self) -> ModelAnswer:
        return ModelAnswer(
            **self.summary.model_dump(),
            engine=self.runtime.engine,
            engine_version=self.runtime.engine_version,
            provider=self.runtime.provider,
            fallback=self.runtime.fallback,
            batch_sizes=list(self.runtime.batch_sizes),
            loaded_at=self.loaded_at,
            metrics=self.artifact.metrics,
            artifact=self.artifact.model_dump(mode="json"),
        )

    def publish(self, metrics: Metrics) -> None:
        """Make this the model that the metrics describe."""
        labels = self.summary.model_dump()
        metrics.model.info({**labels, "engine": self.runtime.engine, "provider": self.runtime.provider})
        metrics.fallback.set(self.runtime.fallback is not None)


def _decoding(settings: Settings) -> Decoding | None:
    """The decoding that the settings ask for; None is the model's own."""
    return None if settings.decoding == "auto" else settings.decoding


def load_runtime(settings: Settings, directory: Path | None) -> InferenceRuntime:
    """A model directory (None: the bundled one) on the configured device, warmed up. Takes seconds."""
    from uepnet.model.runtime import Runtime

    runtime = Runtime(
        directory,
        device=settings.device,
        precision=settings.precision,
        threads=settings.threads,
        max_batch=settings.max_batch_tiles,
        max_batch_pixels=settings.max_batch_pixels,
        engine=settings.engine,
    )
    runtime.artifact.read_by(_decoding(settings))  # refuses before the warm-up
    runtime.warm_up()
    _check_finite(runtime)
    return runtime


def _check_finite(runtime: InferenceRuntime) -> None:
    """A model that was damaged in training may answer NaN, which would spoil every count and every sum of counts."""
    side = runtime.artifact.tiling.tile
    for value in (0, 255):
        (maps,) = runtime.run([np.full((side, side, 3), value, np.uint8)])
        for array in (maps.counts, maps.variance):
            if array is not None and not np.isfinite(array).all():
                raise ModelError("The model answers numbers that are not finite.")
