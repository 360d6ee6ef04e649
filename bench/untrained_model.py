"""A model directory with an untrained network: its counts are meaningless, its speed is real."""

import hashlib
from pathlib import Path

import onnx
import torch

from uepnet.model.artifact import Artifact, Head, Layout, ModelFile, Precision
from uepnet.model.network import build
from uepnet.training.config import NORMALISATION, WIDTH
from uepnet.training.onnx_graph import folded, to_onnx
from uepnet.training.parity import Probe
from uepnet.training.quantise import quantise_blindly
from uepnet.training.workbench import file_name

CLASSES = 25


def untrained_model(folder: Path, encoder: str) -> Path:
    """fp32 and int8 files with 25 and 26 classes, as in the paper."""
    borders = tuple(0.1 * step for step in range(1, CLASSES + 1))
    heads = tuple(Head(borders=borders[:number], proxies=(0.0, *borders[:number])) for number in (24, 25))
    artifact = Artifact(
        name="untrained",
        version="0",
        layout=Layout(encoder=encoder, width=WIDTH[encoder], classes=(CLASSES, CLASSES + 1)),  # type: ignore[arg-type]
        normalisation=NORMALISATION[encoder],
        heads=heads,
        t_max=borders[-1],
    )
    torch.manual_seed(0)
    fp32 = to_onnx(folded(build(artifact.layout)), artifact)
    noise = torch.randint(0, 256, (256, 256, 3), dtype=torch.uint8).numpy()
    models: dict[Precision, onnx.ModelProto] = {"fp32": fp32, "int8": quantise_blindly(fp32, [Probe("noise", noise)])}
    files: dict[Precision, ModelFile] = {}
    for precision, model in models.items():
        content = model.SerializeToString(deterministic=True)
        (folder / file_name(precision)).write_bytes(content)
        files[precision] = ModelFile(file=file_name(precision), sha256=hashlib.sha256(content).hexdigest())
    artifact.model_copy(update={"files": files}).save(folder)
    return folder
