"""The network as it is exported: bytes in, class maps (and expected counts) out.

Torch evaluation and the ONNX export share this module, so they compute the same by construction.
Input: uint8 [n, height, width, 3]. Output: one uint8 class map [n, rows, columns] per head; then, if the artifact
decodes by expectation, `counts` and `variance`, float32 of the same shape (regression: counts and zeros); last, if the
artifact has it, `familiarity`, float32 of the same shape.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from uepnet.model.artifact import Artifact
from uepnet.model.network import UEPNet


def normalise(tiles: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 [n, height, width, 3] -> float [n, 3, height, width]; the channels stay last in memory."""
    return ((tiles.to(mean.dtype) - mean) / std).permute(0, 3, 1, 2)


def expectation(
    logits: Sequence[Tensor], proxies: Sequence[Tensor], temperature: float, floor: float
) -> tuple[Tensor, Tensor]:
    """Mean over the heads of the expected count and its variance, [n, rows, columns] each.

    If the background is nearly certain (its probability, mean over the heads, exceeds 1 - floor), a cell counts 0:
    otherwise many cells with a small probability each would add up to people in empty areas.
    """
    counts = variance = background = torch.zeros((), device=logits[0].device)
    for scores, values in zip(logits, proxies, strict=True):
        chance = (scores / temperature).softmax(1)
        weights = values.view(1, -1, 1, 1)
        expected = (chance * weights).sum(1)
        square = (chance * weights * weights).sum(1)
        counts = counts + expected / len(logits)
        variance = variance + (square - expected * expected).clamp(min=0) / len(logits)
        background = background + chance[:, 0] / len(logits)
    if floor > 0:
        occupied = (background <= 1 - floor).to(counts.dtype)
        counts, variance = counts * occupied, variance * occupied
    return counts, variance


class Graph(nn.Module):
    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, artifact: Artifact) -> None:
        super().__init__()
        self.network = network
        self.decoding = artifact.decoding
        self.temperature = artifact.expectation.temperature
        self.floor = artifact.expectation.floor
        self.familiarity = artifact.familiarity is not None
        self.heads = len(artifact.heads)
        self.register_buffer("mean", torch.tensor(artifact.normalisation.mean))
        self.register_buffer("std", torch.tensor(artifact.normalisation.std))
        for index, head in enumerate(artifact.heads):
            self.register_buffer(f"proxies_{index}", torch.tensor(head.proxies, dtype=torch.float32))

    def forward(self, tiles: Tensor) -> tuple[Tensor, ...]:
        x = normalise(tiles, self.mean, self.std)
        if not self.familiarity:
            return self._decoded(self.network(x))
        logits, familiarity = cast(UEPNet, self.network).with_familiarity(x)
        return (*self._decoded(logits), familiarity)

    def _decoded(self, logits: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if self.decoding == "regression":
            counts = logits[0][:, 0].clamp(min=0)
            return counts, 0 * counts  # zeros of the input's own shape: exporters freeze zeros_like
        classes = tuple(scores.argmax(1).to(torch.uint8) for scores in logits)
        if self.decoding == "argmax":
            return classes
        proxies = [getattr(self, f"proxies_{index}") for index in range(self.heads)]
        return (*classes, *expectation(logits, proxies, self.temperature, self.floor))
