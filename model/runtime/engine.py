"""What the runtime asks of an inference engine, and the checks that all engines share."""

import hashlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Artifact, EngineName, Precision
from uepnet.model.errors import ArtifactError, InferenceError, ModelError

Outputs = dict[str, NDArray[Any]]  # by name, each [n, rows, columns]


class InferenceEngine(Protocol):
    """A loaded model on a device. `infer` may be called from several threads."""

    name: EngineName
    version: str
    device: str  # cpu, cuda:N, tensorrt:N, intel-gpu:N
    provider: str  # the engine's own word for what runs

    def infer(self, batch: NDArray[np.uint8]) -> Outputs:
        """The outputs for tiles [n, height, width, 3]; InferenceError where the device fails."""
        ...

    def memory(self) -> tuple[int, int] | None:
        """(used, total) bytes of the device; None on the CPU or where the driver does not say."""
        ...


def file_precision(precision: Precision) -> Precision:
    """The precision of the ONNX file that is loaded: bfloat16 is computed from the fp32 file."""
    return "fp32" if precision == "bf16" else precision


def read_model(model_dir: Path, artifact: Artifact, precision: Precision) -> tuple[Path, bytes]:
    """The ONNX file for a precision, after its sha256 was compared with the artifact's."""
    entry = artifact.files[file_precision(precision)]
    path = model_dir / entry.file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from None
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise ModelError(f"{path} is damaged or of another model: its sha256 is not the artifact's.")
    return path, content


def check_model(path: Path, artifact: Artifact, inference_hash: str | None, found: dict[str, str]) -> None:
    """Refuse a graph that was exported for another artifact, or whose inputs and outputs (name: type) are others."""
    if inference_hash != artifact.inference_hash:
        raise ArtifactError(f"{path} was exported for another artifact: their inference hashes differ.")
    expected = {"tiles": "uint8"}
    expected |= {f"classes_{head}": "uint8" for head in range(len(artifact.heads))}
    if artifact.decoding != "argmax":
        expected |= {"counts": "float32", "variance": "float32"}
    if artifact.familiarity is not None:
        expected |= {"familiarity": "float32"}
    if found != expected:
        raise ModelError(f"{path} must have the inputs and outputs {expected}, not {found}.")


def device_failure(device: str, batch: NDArray[np.uint8], precision: Precision) -> InferenceError:
    n, height, width, _ = batch.shape
    return InferenceError(f"{device} could not run a batch of {n} tiles of {width}x{height} in {precision}.")


def first_line(error: Exception) -> str:
    """Engines explain themselves over many lines; the first that says something is enough for a message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from")]
    return lines[0] if lines else type(error).__name__
