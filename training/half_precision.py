"""fp16 arithmetic on a CPU, in torch: what a GPU that computes the fp16 file will answer.

A CPU computes an fp16 file in fp32: ONNX Runtime and OpenVINO convert the weights, and nothing between the layers is
rounded. Comparing there proves the weights, not the arithmetic. Torch has fp16 convolutions on a CPU, but they take
fifty times as long. Here the weights and the result of every operation are rounded to fp16, and sums within an
operation stay in fp32, as in a GPU's matrix units.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from uepnet.model.artifact import Artifact
from uepnet.model.decode import Maps
from uepnet.model.errors import DataError, ModelError
from uepnet.model.network import UEPNet
from uepnet.training.evaluate import torch_runner
from uepnet.training.parity import Difference, Probe, answers, compare


class Rounding(TorchFunctionMode):
    """Rounds what every torch operation within it returns; what is too large for fp16 becomes infinite."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        return _rounded(result) if isinstance(result, Tensor) and result.dtype == torch.float32 else result


class HalfOnCpu(nn.Module):
    """The network as `onnx_graph.Half` exports it, computed as a GPU computes it."""

    def __init__(self, network: UEPNet) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        for tensor in (*self.network.parameters(), *self.network.buffers()):
            if tensor.dtype == torch.float32:
                tensor.data = _rounded(tensor.data)

    def forward(self, x: Tensor) -> list[Tensor]:
        with Rounding():
            logits: list[Tensor] = self.network(_rounded(x))
        return logits

    def with_familiarity(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        with Rounding():
            return self.network.with_familiarity(_rounded(x))


def half_difference(network: UEPNet, artifact: Artifact, probes: Sequence[Probe], truth: Sequence[Maps]) -> Difference:
    """How far the counts in fp16 arithmetic are from `truth`, torch's in fp32; ModelError where they are no numbers.

    `network`: as it is exported, with batch norms folded into the convolutions, which changes the range of its values.
    """
    found = answers(torch_runner(HalfOnCpu(network), artifact, torch.device("cpu")), probes)
    try:
        return compare(probes, truth, found, artifact)
    except DataError as error:
        raise ModelError(f"fp16 was refused: {error}") from None


def _rounded(values: Tensor) -> Tensor:
    return values.half().float()
