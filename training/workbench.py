"""Measures exported graphs against torch, through `model.runtime`, the code path of serving."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import onnx
import torch
from torch import nn

from uepnet.model.artifact import Artifact, ModelFile, Precision
from uepnet.model.decode import Maps
from uepnet.model.runtime import Runtime
from uepnet.training.engines import times_as_fast
from uepnet.training.evaluate import torch_runner
from uepnet.training.parity import Difference, Probe, answers, compare


@dataclass(frozen=True, eq=False)
class Reference:
    """Tiles and torch's answers to them."""

    probes: Sequence[Probe]
    maps: Sequence[Maps]

    @classmethod
    def of(cls, network: nn.Module, artifact: Artifact, probes: Sequence[Probe]) -> Self:
        return cls(probes, answers(torch_runner(network, artifact, torch.device("cpu")), probes))


class Workbench:
    """Runs graphs in a scratch folder. Nothing in that folder becomes part of the exported model."""

    def __init__(self, scratch: Path, artifact: Artifact) -> None:
        self._scratch = scratch
        self._artifact = artifact

    def difference(self, model: onnx.ModelProto, precision: Precision, reference: Reference) -> Difference:
        """How far the counts of a graph are from torch's."""
        runtime = self._runtime(model, precision)
        return compare(reference.probes, reference.maps, answers(runtime.run_tiles, reference.probes), self._artifact)

    def speed(
        self,
        model: onnx.ModelProto,
        precision: Precision,
        fp32: onnx.ModelProto,
        probes: Sequence[Probe],
        rounds: int = 5,
    ) -> float:
        """Times as fast as fp32 on the largest probe."""
        return times_as_fast(self._runtime(fp32, "fp32"), self._runtime(model, precision), probes, rounds)

    def _runtime(self, model: onnx.ModelProto, precision: Precision) -> Runtime:
        content = serialised(model)
        (self._scratch / file_name(precision)).write_bytes(content)
        self._artifact.model_copy(update={"files": {precision: model_file(precision, content)}, "engines": {}}).save(
            self._scratch
        )
        return Runtime(self._scratch, device="cpu", precision=precision, engine="onnxruntime", warn=False)


def file_name(precision: Precision) -> str:
    return f"model.{precision}.onnx"


def serialised(model: onnx.ModelProto) -> bytes:
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def model_file(precision: Precision, content: bytes) -> ModelFile:
    return ModelFile(file=file_name(precision), sha256=hashlib.sha256(content).hexdigest())
