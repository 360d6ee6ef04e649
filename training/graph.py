"""The network as it is exported: bytes in, class maps (and expected counts) out.

One module serves torch evaluation and the ONNX export, so both compute the same thing by construction.
Input: uint8 [n, height, width, 3]. Output: one uint8 class map [n, rows, columns] a head; then, where the artifact
decodes by expectation, `counts` and `variance`, float32 of the same shape (regression: counts and zeros).
"""

import torch
from torch import Tensor, nn

from uepnet.model.artifact import Artifact


def normalise(tiles: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 [n, height, width, 3] -> float [n, 3, height, width]; the channels stay last in memory."""
    return ((tiles.to(mean.dtype) - mean) / std).permute(0, 3, 1, 2)


class Graph(nn.Module):
    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, artifact: Artifact) -> None:
        super().__init__()
        self.network = network
        self.decoding = artifact.decoding
        self.temperature = artifact.expectation.temperature
        self.floor = artifact.expectation.floor
        self.heads = len(artifact.heads)
        self.register_buffer("mean", torch.tensor(artifact.normalisation.mean))
        self.register_buffer("std", torch.tensor(artifact.normalisation.std))
        for index, head in enumerate(artifact.heads):
            self.register_buffer(f"proxies_{index}", torch.tensor(head.proxies, dtype=torch.float32))

    def forward(self, tiles: Tensor) -> tuple[Tensor, ...]:
        logits = self.network(normalise(tiles, self.mean, self.std))
        if self.decoding == "regression":
            counts = logits[0][:, 0].clamp(min=0)
            return counts, counts * 0  # zeros that keep the shape of any tile in an exported graph
        classes = tuple(scores.argmax(1).to(torch.uint8) for scores in logits)
        if self.decoding == "argmax":
            return classes
        return (*classes, *self._expectation(logits))

    def _expectation(self, logits: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Mean over the heads of the expected count and its variance, nothing where the background is near certain."""
        counts = variance = background = torch.zeros((), device=logits[0].device)
        for index, scores in enumerate(logits):
            chance = (scores / self.temperature).softmax(1)
            proxies = getattr(self, f"proxies_{index}").view(1, -1, 1, 1)
            expected = (chance * proxies).sum(1)
            square = (chance * proxies * proxies).sum(1)
            counts = counts + expected / self.heads
            variance = variance + (square - expected * expected).clamp(min=0) / self.heads
            background = background + chance[:, 0] / self.heads
        if self.floor > 0:
            occupied = (background <= 1 - self.floor).to(counts.dtype)
            counts, variance = counts * occupied, variance * occupied
        return counts, variance
