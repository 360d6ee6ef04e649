"""`--model DIR` is a model directory (ONNX) or a training run (torch); both count through the same path."""

from pathlib import Path
from typing import TYPE_CHECKING

from uepnet.model.artifact import model_directory

if TYPE_CHECKING:
    from uepnet.model.artifact import Artifact
    from uepnet.model.count import RunTiles


def open_model(
    model: Path | None, device: str = "auto", precision: str = "auto", threads: int = 0, engine: str = "auto"
) -> "tuple[Artifact, RunTiles, str]":
    """The artifact, a runner for `count_image`, and a word on what runs."""
    model = None if model is None else model_directory(model)
    if model is not None and (model / "weights.safetensors").is_file():
        return _open_run(model, device, threads)
    from uepnet.model.runtime import Runtime

    runtime = Runtime(model, device=device, precision=precision, threads=threads, engine=engine)
    return runtime.artifact, runtime.run_tiles, f"{runtime.precision} on {runtime.device}, {runtime.engine}"


def _open_run(run: Path, device: str, threads: int) -> "tuple[Artifact, RunTiles, str]":
    import torch

    from uepnet.model.artifact import Artifact
    from uepnet.model.errors import DeviceError
    from uepnet.training.evaluate import torch_runner
    from uepnet.training.prepare import load_network

    if threads > 0:
        torch.set_num_threads(threads)
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    artifact = Artifact.load(run)
    try:
        network = load_network(run, artifact).to(chosen)
    except RuntimeError:  # torch's, whatever is wrong with the name or the device
        raise DeviceError(f"Device {device} cannot run the network here: choose auto, cpu, cuda or cuda:N.") from None
    return artifact, torch_runner(network, artifact, torch.device(chosen)), f"torch on {chosen}"
