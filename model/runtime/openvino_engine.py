"""OpenVINO: the CPU, and Intel's GPUs.

Everything that OpenVINO would otherwise decide by itself is set: the precision (its own default is bfloat16 where the
processor has it), the threads, one stream, no pinning to cores (a pinned thread cannot move away from a busy core), and
the cache of compiled shapes (its default holds thousands of primitives: 6 MB for each new shape of tile, without end).
"""

import logging
import sys
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Artifact, EngineName, Precision
from uepnet.model.errors import DeviceError, ModelError
from uepnet.model.runtime.engine import Outputs, check_model, device_failure, first_line, read_model

CACHED_PRIMITIVES = 1000  # some 16 shapes, 6 MiB each; any other shape costs 20-50 ms of one core
RECENT = 256  # tiles whose shapes are remembered
# A shape with this share of the recent tiles gets a graph of its own. Compiling one costs as much as it saves over some
# 60 tiles: a shape that came that often will probably come as often again, and a short run never pays for it.
FIXED_SHARE = 0.25
MAX_FIXED = 2  # such graphs at a time: each takes some 50 MiB at 864x640, and saves a sixth of the time

log = logging.getLogger(__name__)


def import_silently() -> ModuleType:
    """The package `openvino`, which otherwise reports every import to its maker and leaves an identifier in $HOME.

    Its telemetry is a package of its own; as long as that one cannot be imported, OpenVINO uses a stub that is silent.
    """
    hidden = "openvino_telemetry" not in sys.modules
    if hidden:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # importing it now fails
    try:
        return import_module("openvino")
    finally:
        if hidden:
            del sys.modules["openvino_telemetry"]


openvino = import_silently()


def new_core() -> Any:
    """A Core whose plugins were loaded in a thread of their own.

    OpenVINO's CPU plugin gives the thread that loads it a new signal stack, and frees that stack when the plugin is
    dropped, from whatever thread. The next signal to the first thread would then end the process without a word, for
    example SIGTERM after a reload. A thread that has ended gets no signals. (One Core for all engines would be simpler,
    but networks that share a Core mix up their constants.)
    """

    def load() -> Any:
        core = openvino.Core()
        _ = core.available_devices  # loads the plugins
        return core

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(load).result()


def available_devices() -> list[str]:
    """What OpenVINO finds here: CPU, GPU.0 ..."""
    return list(new_core().available_devices)


class OpenVinoEngine:
    """One graph for tiles of any shape, and a few for the shapes that keep coming (cameras of a fixed size).

    One batch runs at a time, on all threads: a second one beside it would only share the same cores.
    """

    name: EngineName = "openvino"
    version: str = openvino.__version__.partition("-")[0]

    def __init__(
        self, model_dir: Path, artifact: Artifact, precision: Precision, threads: int, gpu: int | None = None
    ) -> None:
        path, content = read_model(model_dir, artifact, precision)
        self.device = "cpu" if gpu is None else f"intel-gpu:{gpu}"
        self.provider = "CPU" if gpu is None else f"GPU.{gpu}"
        self._precision = precision
        self._core = new_core()
        self._options = _cpu_options(precision, threads) if gpu is None else _gpu_options(precision)
        found = self._core.available_devices  # "GPU" where there is one, "GPU.0", "GPU.1" where there are several
        if gpu is not None and self.provider not in found and (gpu > 0 or "GPU" not in found):
            raise DeviceError(f"OpenVINO finds no {self.device} here; it finds {', '.join(found)}.")
        try:
            self._model = self._core.read_model(content)
            _check(self._model, artifact, path)
            self._any_shape = self._compiled()
        except RuntimeError as error:
            raise ModelError(f"OpenVINO cannot load {path}: {first_line(error)}") from error
        self._fixed: dict[tuple[int, ...], Any] = {}
        self._recent: deque[tuple[int, ...]] = deque(maxlen=RECENT)
        self._lock = threading.Lock()

    def infer(self, batch: NDArray[np.uint8]) -> Outputs:
        with self._lock:
            try:
                request = self._request_for(batch.shape)
                results = request.infer({"tiles": batch}, share_inputs=True)
            except RuntimeError as error:
                log.error("%s: %s", self.device, error)
                raise device_failure(self.device, batch, self._precision) from error
            return {output.any_name: results[output] for output in request.model_outputs}

    def memory(self) -> tuple[int, int] | None:
        return None

    @property
    def fixed_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes [n, height, width, 3] that have a graph of their own at the moment."""
        return tuple(self._fixed)

    def _request_for(self, shape: tuple[int, ...]) -> Any:
        """The graph for this shape; compiles one where the shape has become frequent."""
        self._recent.append(shape)
        if shape in self._fixed:
            return self._fixed[shape]
        shares = Counter(self._recent)
        if shares[shape] < FIXED_SHARE * RECENT or (len(self._fixed) == MAX_FIXED and not self._drop_rare(shares)):
            return self._any_shape
        self._fixed[shape] = self._compiled(shape)
        log.info("tiles of %dx%d have a graph of their own now", shape[2], shape[1])
        return self._fixed[shape]

    def _drop_rare(self, shares: "Counter[tuple[int, ...]]") -> bool:
        """Make room where a fixed shape has become rare; says whether it did."""
        rare = min(self._fixed, key=lambda shape: shares[shape])
        if shares[rare] >= FIXED_SHARE * RECENT / 4:
            return False
        del self._fixed[rare]
        return True

    def _compiled(self, shape: tuple[int, ...] | None = None) -> Any:
        model = self._model
        if shape is not None:
            model = model.clone()
            model.reshape({"tiles": list(shape)})
        return self._core.compile_model(model, self.provider, self._options).create_infer_request()


def _cpu_options(precision: Precision, threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",  # int8 layers stay int8 under f32
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_HYPER_THREADING": True,  # else the number of threads is cut to that of whole cores
        "ENABLE_CPU_PINNING": False,
        "CPU_RUNTIME_CACHE_CAPACITY": CACHED_PRIMITIVES,
    }


def _gpu_options(precision: Precision) -> dict[str, Any]:
    """Intel's GPU plugin computes in f16 unless told otherwise."""
    return {"INFERENCE_PRECISION_HINT": "f16" if precision == "fp16" else "f32", "PERFORMANCE_HINT": "LATENCY"}


def _check(model: Any, artifact: Artifact, path: Path) -> None:
    where = ["framework", "inference_hash"]  # OpenVINO keeps an ONNX file's metadata here
    inference_hash = model.get_rt_info(where).astype(str) if model.has_rt_info(where) else None
    types = {port.any_name: port.element_type.to_dtype().name for port in (*model.inputs, *model.outputs)}
    check_model(path, artifact, inference_hash, types)
