"""ONNX Runtime: the CPU, CUDA and TensorRT.

Of a missing CUDA library ONNX Runtime only logs, and quietly stays on the CPU: the provider of the finished session
tells what really runs, and `load_trouble` which library is missing. One code path serves all: inputs and outputs are
bound to the device's memory.
"""

import ctypes
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as status

from uepnet.model.artifact import Artifact, EngineName, Precision
from uepnet.model.device import cuda_driver, cuda_memory
from uepnet.model.errors import DeviceError, ModelError
from uepnet.model.runtime.engine import Outputs, check_model, device_failure, first_line, read_model
from uepnet.model.shapes import ShapePolicy

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"

# What ONNX Runtime raises has no common base below Exception.
RUNTIME_ERRORS = (
    status.EPFail,
    status.EngineError,
    status.Fail,
    status.InvalidArgument,
    status.InvalidGraph,
    status.InvalidProtobuf,
    status.NoSuchFile,
    status.NotImplemented,
    status.RuntimeException,
    RuntimeError,
    ValueError,
)
TYPES = {"tensor(uint8)": "uint8", "tensor(float)": "float32"}

log = logging.getLogger(__name__)


class OnnxRuntimeEngine:
    name: EngineName = "onnxruntime"
    version: str = onnxruntime.__version__

    def __init__(
        self,
        model_dir: Path,
        artifact: Artifact,
        precision: Precision,
        threads: int,
        device: str = "cpu",
        policy: ShapePolicy | None = None,
    ) -> None:
        """`device` is cpu, cuda:N or tensorrt:N; DeviceError where it does not load. TensorRT needs the policy."""
        kind, _, ordinal = device.partition(":")
        self.device = device
        self._precision = precision
        self._ordinal = None if kind == "cpu" else int(ordinal)
        self._session = _open_session(
            model_dir, artifact, precision, _providers(device, artifact, precision, policy), threads
        )
        self.provider: str = self._session.get_providers()[0]
        wanted = {"cpu": CPU, "cuda": CUDA, "tensorrt": TENSORRT}[kind]
        if self.provider != wanted:
            raise DeviceError(f"ONNX Runtime could not load {wanted} ({load_trouble(wanted)}).")
        self._names = [output.name for output in self._session.get_outputs()]

    def infer(self, batch: NDArray[np.uint8]) -> Outputs:
        kind, ordinal = ("cpu", 0) if self._ordinal is None else ("cuda", self._ordinal)
        try:
            binding = self._session.io_binding()
            value = onnxruntime.OrtValue.ortvalue_from_numpy(batch, kind, ordinal)
            binding.bind_ortvalue_input("tiles", value)
            for name in self._names:
                binding.bind_output(name, kind, ordinal)
            self._session.run_with_iobinding(binding)
            return dict(zip(self._names, binding.copy_outputs_to_cpu(), strict=True))
        except RUNTIME_ERRORS as error:
            log.error("%s: %s", self.device, error)
            raise device_failure(self.device, batch, self._precision) from error

    def memory(self) -> tuple[int, int] | None:
        return None if self._ordinal is None else cuda_memory(self._ordinal)


def has_provider(provider: str) -> bool:
    """Whether this build of ONNX Runtime has the provider; that it loads is another matter."""
    return provider in onnxruntime.get_available_providers()


def why_no_nvidia(provider: str) -> str | None:
    """Why CUDA or TensorRT cannot even be tried; None where they can."""
    if has_provider(provider):
        onnxruntime.preload_dlls()  # the CUDA libraries that came as wheels
        return None
    name = "TensorRT" if provider == TENSORRT else "CUDA"
    return f"this ONNX Runtime was built without {name} (pip install 'uepnet[gpu]' has it)"


def load_trouble(provider: str = CUDA) -> str:
    """Why the provider does not load, in the dynamic linker's words: it names the library that is missing."""
    folder = Path(onnxruntime.__file__).parent / "capi"
    library = "tensorrt" if provider == TENSORRT else "cuda"
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / f"libonnxruntime_providers_{library}.so"))
    except OSError as error:
        return str(error)
    return "its libraries are there: is there a CUDA device, and is the driver new enough?"


def provider_states() -> dict[str, str]:
    """Each provider that this ONNX Runtime could have, and whether it loads; compiled in is not loaded."""
    compiled = onnxruntime.get_available_providers()
    states = {CPU: "loads"}
    if CUDA not in compiled:
        states[CUDA] = "not in this ONNX Runtime (pip install 'uepnet[gpu]')"
    elif cuda_driver() is None:
        states[CUDA] = "no NVIDIA driver: libcuda.so.1 is not there"
    elif cuda_memory(0) is None:
        states[CUDA] = "the NVIDIA driver shows no device"
    else:
        onnxruntime.preload_dlls()
        for provider in (CUDA, TENSORRT):
            if provider in compiled:
                trouble = load_trouble(provider)
                states[provider] = "loads" if trouble.startswith("its libraries") else trouble
    return states | {name: "compiled in, not used" for name in compiled if name not in states}


def _open_session(model_dir: Path, artifact: Artifact, precision: Precision, providers: list[Any], threads: int) -> Any:
    """A session on the file of this precision, after its bytes, metadata and signature were checked."""
    path, content = read_model(model_dir, artifact, precision)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors: warnings about node placement help nobody here
    # Spinning threads would steal the cores that decode images.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(content, options, providers=providers)
    except RUNTIME_ERRORS as error:
        raise ModelError(f"ONNX Runtime cannot load {path}: {first_line(error)}") from error
    inference_hash = session.get_modelmeta().custom_metadata_map.get("inference_hash")
    ports = (*session.get_inputs(), *session.get_outputs())
    check_model(path, artifact, inference_hash, {port.name: TYPES.get(port.type, port.type) for port in ports})
    return session


def _providers(device: str, artifact: Artifact, precision: Precision, policy: ShapePolicy | None) -> list[Any]:
    kind, _, ordinal = device.partition(":")
    if kind == "cpu":
        return [CPU]
    cuda = (CUDA, _cuda_options(int(ordinal)))
    if kind == "cuda":
        return [cuda, CPU]
    policy = policy or ShapePolicy.bucketed(artifact.tiling.tile, 1)
    options = tensorrt_options(int(ordinal), precision, policy, artifact.tiling.tile, tensorrt_cache())
    return [(TENSORRT, options), cuda, CPU]


def _cuda_options(ordinal: int) -> dict[str, str]:
    options = {
        "device_id": str(ordinal),
        "cudnn_conv_algo_search": "HEURISTIC",  # EXHAUSTIVE measures anew for each shape, for the same speed
        "prefer_nhwc": "1",  # what tensor cores read
        "arena_extend_strategy": "kSameAsRequested",
    }
    memory = cuda_memory(ordinal)
    if memory is not None:
        options["gpu_mem_limit"] = str(int(0.9 * memory[1]))  # the rest is the driver's and cuDNN's
    return options


def tensorrt_options(ordinal: int, precision: Precision, policy: ShapePolicy, tile: int, cache: Path) -> dict[str, str]:
    """One profile from the smallest bucket to the largest; engine and kernel timings are kept from start to start."""
    shapes = list(policy.warm_up_shapes(tile))
    smallest = [min(sizes) for sizes in zip(*shapes, strict=True)]
    largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    cache.mkdir(parents=True, exist_ok=True)
    return {
        "device_id": str(ordinal),
        "trt_fp16_enable": "1" if precision == "fp16" else "0",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(cache),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(cache),
        "trt_profile_min_shapes": _profile(smallest),
        "trt_profile_opt_shapes": _profile([1, tile, tile]),
        "trt_profile_max_shapes": _profile(largest),
    }


def _profile(shape: list[int]) -> str:
    n, height, width = shape
    return f"tiles:{n}x{height}x{width}x3"


def tensorrt_cache() -> Path:
    """Where built engines are kept: minutes of work, so in a container this belongs on a volume."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "uepnet" / "tensorrt"
