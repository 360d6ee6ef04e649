"""From what was asked for (device, engine, precision) to a loaded engine, or one sentence why not."""

import logging
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from uepnet.model.artifact import Artifact
from uepnet.model.device import cuda_driver
from uepnet.model.errors import DeviceError
from uepnet.model.runtime.choice import INSTALL, EngineChoice, Machine, check_known, choose_on_cpu, choose_precision
from uepnet.model.runtime.engine import InferenceEngine
from uepnet.model.shapes import MAX_BATCH_PIXELS, ShapePolicy

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    model_dir: Path
    artifact: Artifact
    device: str
    precision: str
    engine: str
    threads: int
    max_batch: int = 8
    max_batch_pixels: int = MAX_BATCH_PIXELS

    def buckets(self) -> ShapePolicy:
        return ShapePolicy.bucketed(self.artifact.tiling.tile, self.max_batch, self.max_batch_pixels)


@dataclass(frozen=True, slots=True)
class Opened:
    engine: InferenceEngine
    choice: EngineChoice
    policy: ShapePolicy
    fallback: str | None = None  # why the CPU runs although something else was wanted


def open_engine(wanted: Wanted) -> Opened:
    check_known(wanted.artifact, wanted.engine, wanted.precision)
    kind, ordinal = parse_device(wanted.device)
    if kind == "intel-gpu":
        return _on_intel_gpu(wanted, ordinal)
    reason = None
    if kind in ("cuda", "tensorrt") or (kind == "auto" and wanted.engine != "openvino" and wanted.precision != "bf16"):
        opened, reason = _on_nvidia(wanted, "tensorrt" if kind == "tensorrt" else "cuda", ordinal)
        if opened is not None:
            return opened
        if kind != "auto":
            raise DeviceError(f"Device {wanted.device} cannot run the model: {reason}.")
        # A machine without an NVIDIA driver loses nothing on the CPU: no fallback.
        reason = None if _has_no_cuda() and cuda_driver() is None else reason
    fallback = None if reason is None else f"Running on the CPU: {reason}."
    if fallback is not None:
        log.warning(fallback)
    return _on_cpu(wanted, fallback)


def parse_device(device: str) -> tuple[str, int]:
    """`cuda:1` -> ("cuda", 1)."""
    match = re.fullmatch(r"(auto|cpu)|(cuda|tensorrt|intel-gpu)(?::(\d+))?", device)
    if match is None:
        raise DeviceError(
            f"Device must be auto, cpu, cuda, tensorrt or intel-gpu (cuda:1 is the second), not {device!r}."
        )
    return match[1] or match[2], int(match[3] or 0)


def _on_cpu(wanted: Wanted, fallback: str | None) -> Opened:
    choice = choose_on_cpu(wanted.artifact, wanted.engine, wanted.precision, Machine.here())
    engine: InferenceEngine
    if choice.engine == "openvino":
        from uepnet.model.runtime.openvino_engine import OpenVinoEngine

        engine = OpenVinoEngine(wanted.model_dir, wanted.artifact, choice.precision, wanted.threads)
    else:
        from uepnet.model.runtime.onnxruntime_engine import OnnxRuntimeEngine

        engine = OnnxRuntimeEngine(wanted.model_dir, wanted.artifact, choice.precision, wanted.threads)
    return Opened(engine, choice, ShapePolicy(), fallback)


def _on_nvidia(wanted: Wanted, kind: str, ordinal: int) -> tuple[Opened | None, str | None]:
    """The opened engine, or why there is none."""
    if wanted.engine == "openvino":
        raise DeviceError(f"OpenVINO runs on cpu and intel-gpu, not on {kind}: use --engine onnxruntime.")
    if wanted.precision == "bf16":
        raise DeviceError(f"bf16 runs on the CPU alone, not on {kind}: use fp16.")
    if find_spec("onnxruntime") is None:
        return None, f"ONNX Runtime is not installed ({INSTALL['onnxruntime']})"
    from uepnet.model.runtime.onnxruntime_engine import CUDA, TENSORRT, OnnxRuntimeEngine, why_no_nvidia

    reason = why_no_nvidia(TENSORRT if kind == "tensorrt" else CUDA)
    if reason is not None:
        return None, reason
    precision = choose_precision(wanted.artifact, wanted.precision, "onnxruntime", Machine.here(), kind="gpu")
    policy = wanted.buckets()
    try:
        engine = OnnxRuntimeEngine(
            wanted.model_dir, wanted.artifact, precision, wanted.threads, f"{kind}:{ordinal}", policy
        )
    except DeviceError as error:
        return None, str(error).rstrip(".")
    reason = f"{'TensorRT' if kind == 'tensorrt' else 'CUDA'} loads, and ONNX Runtime alone drives it."
    return Opened(engine, EngineChoice("onnxruntime", precision, reason), policy), None


def _on_intel_gpu(wanted: Wanted, ordinal: int) -> Opened:
    if wanted.engine == "onnxruntime":
        raise DeviceError("ONNX Runtime does not run on intel-gpu here: use --engine openvino.")
    if wanted.precision == "bf16":
        raise DeviceError("bf16 runs on the CPU alone, not on intel-gpu: use fp16.")
    if find_spec("openvino") is None:
        raise DeviceError(f"Device {wanted.device} needs OpenVINO: {INSTALL['openvino']}.")
    from uepnet.model.runtime.openvino_engine import OpenVinoEngine

    precision = choose_precision(wanted.artifact, wanted.precision, "openvino", Machine.here(), kind="gpu")
    engine = OpenVinoEngine(wanted.model_dir, wanted.artifact, precision, wanted.threads, gpu=ordinal)
    return Opened(engine, EngineChoice("openvino", precision, "The device was asked for."), wanted.buckets())


def _has_no_cuda() -> bool:
    if find_spec("onnxruntime") is None:
        return True
    from uepnet.model.runtime.onnxruntime_engine import CUDA, has_provider

    return not has_provider(CUDA)
