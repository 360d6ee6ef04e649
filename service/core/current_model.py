"""The model that serves now: loading it at the start, replacing it by another one, stopping it."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from uepnet.model.errors import UepnetError
from uepnet.service.core.loaded_model import InferenceRuntime, LoadedModel, load_runtime
from uepnet.service.errors import Refused
from uepnet.service.metrics import Metrics
from uepnet.service.settings import Settings

log = logging.getLogger(__name__)


class CurrentModel:
    """Thread: every method runs on the event loop; loading itself runs in a worker thread."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._reloading = asyncio.Lock()
        self.loaded: LoadedModel | None = None
        self.failure: UepnetError | None = None  # why no model is loaded and none will be
        self.failed = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        """Still loading counts as alive; a failed load or a lost device does not."""
        if self.loaded is None:
            return self.failure is None
        return self.loaded.batcher.alive(self._settings.stall_seconds)

    @property
    def is_ready(self) -> bool:
        return self.loaded is not None and self.is_alive

    def ready(self, counted: bool = True) -> LoadedModel:
        """The loaded model; `counted` is whether a refusal counts as a rejected request."""
        if self.loaded is None or not self.is_alive:
            if counted:
                self._metrics.reject("not_ready")
            raise Refused("not-ready", "The model is not loaded yet, or its device has failed.")
        return self.loaded

    async def start(self, runtime: InferenceRuntime | None) -> None:
        """Load the configured model, or take `runtime`; a failure is kept in `failure`."""
        try:
            if runtime is None:
                runtime = await asyncio.to_thread(load_runtime, self._settings, self._settings.model)
        except UepnetError as error:
            log.critical("the model cannot be served: %s", error)
            self.failure = error
            self.failed.set()
            return
        self._serve(LoadedModel(runtime, self._settings, self._metrics))
        self._metrics.watch_device_memory(lambda: self.loaded.runtime.device_memory() if self.loaded else None)

    async def reload(self, path: str | None) -> LoadedModel:
        """Load another model beside the current one, then swap. A model that cannot run changes nothing."""
        directory = self._allowed(path)
        if self._reloading.locked():
            raise Refused("reload-under-way", "Wait until the other reload has finished.")
        async with self._reloading:
            try:
                runtime = await asyncio.to_thread(load_runtime, self._settings, directory)
            except UepnetError as error:
                self._metrics.reloads.labels("refused").inc()
                log.warning("the model %s was refused: %s", directory or "bundled", error)
                raise Refused("model-refused", _without_path(str(error), directory)) from None
            old = self.loaded
            self._serve(LoadedModel(runtime, self._settings, self._metrics))
            if old is not None:
                old.batcher.retire()  # requests that run on it finish on it
            self._metrics.reloads.labels("swapped").inc()
            return self.ready()

    async def stop(self) -> None:
        if self.loaded is not None:
            await asyncio.to_thread(self.loaded.batcher.stop, 5.0)

    def _serve(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        loaded.publish(self._metrics)
        log.info("serving %s %s", loaded.artifact.name, loaded.artifact.version)

    def _allowed(self, path: str | None) -> Path | None:
        """The directory to load: the configured one, or one below models_dir, links followed."""
        configured, models_dir = self._settings.model, self._settings.models_dir
        if path is None:
            return configured
        with suppress(OSError, RuntimeError, ValueError):  # links in a circle, names that no file can have
            asked = Path(path) if models_dir is None else models_dir / path
            if configured is not None and asked.resolve() == configured.resolve():
                return configured
            if models_dir is not None and asked.resolve().is_relative_to(models_dir.resolve()):
                return asked
        raise Refused("model-refused", "The path must be the configured model or lie below models_dir.")


def _without_path(text: str, directory: Path | None) -> str:
    """A sentence about a model directory without where the directory lies on this machine."""
    return text if directory is None else text.replace(str(directory), directory.name or "the model")
