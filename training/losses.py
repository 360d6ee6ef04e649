"""What training minimises: the cross-entropy of every head, and the error of expected counts."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from uepnet.model.artifact import Artifact

SPREAD = 0.22  # standard deviation of the count of a block with many people, as a share of the count
SHAPE = SPREAD**-2  # of the negative binomial
FEWEST = 0.05  # people added to every block: the mean of an empty block must not be 0


class TrainingLoss(nn.Module):
    """Logits and true local counts -> the loss: cross-entropy of every head, and the error of expected counts."""

    def __init__(self, artifact: Artifact, count_loss: float, output_relu: bool = False) -> None:
        super().__init__()
        self.count_loss = count_loss
        self.output_relu = output_relu
        self.regression = artifact.decoding == "regression"
        # A model that is trained further is trained as it counts; a new one has a temperature of 1 and no floor.
        self.temperature, self.floor = artifact.expectation.temperature, artifact.expectation.floor
        for index, head in enumerate(artifact.heads):
            self.register_buffer(f"borders_{index}", torch.tensor(head.borders, dtype=torch.float32))
            self.register_buffer(f"proxies_{index}", torch.tensor(head.proxies, dtype=torch.float32))

    def forward(self, logits: list[Tensor], counts: Tensor) -> dict[str, Tensor]:
        """logits: one [n, classes, rows, columns] per head; counts: [n, rows, columns], NaN in cells without loss."""
        used = counts.isfinite()
        if self.regression:
            values = logits[0][:, 0][used]
            return {"loss": functional.mse_loss(values.relu() if self.output_relu else values, counts[used])}
        counts = counts.nan_to_num()
        entropy = torch.zeros((), device=counts.device)
        expected = background = torch.zeros_like(counts)
        for index, scores in enumerate(logits):
            scores = scores / self.temperature
            classes = torch.bucketize(counts, getattr(self, f"borders_{index}"), right=True)
            entropy = entropy + functional.cross_entropy(scores, classes.masked_fill(~used, -100))
            chance = scores.softmax(1)
            expected = expected + torch.einsum("nchw,c->nhw", chance, getattr(self, f"proxies_{index}")) / len(logits)
            background = background + chance[:, 0] / len(logits)
        if self.floor:
            expected = expected * (background <= 1 - self.floor)
        losses = {"loss": entropy, "entropy": entropy.detach()}
        if self.count_loss:
            error = self._count_error(expected * used, counts)
            losses |= {"loss": entropy + self.count_loss * error, "count": error.detach()}
        return losses

    def _count_error(self, expected: Tensor, counts: Tensor) -> Tensor:
        """The deviance of a negative binomial distribution of the people in blocks of 4x4 and 16x16 cells.

        Its minimum is the mean. The minimum of an absolute error is the median, which is 0 for blocks that are mostly
        empty: a network trained with it counts too few people where they stand apart. The variance is that of a
        Poisson distribution plus SPREAD of the count, squared.
        """
        error = torch.zeros((), device=counts.device)
        for block in (4, 16):
            mean, seen = (
                functional.avg_pool2d(people[:, None], block, ceil_mode=True, divisor_override=1) + FEWEST
                for people in (expected, counts)
            )
            odds = torch.log1p(mean / SHAPE) - torch.log1p(seen / SHAPE)
            error = error + 2 * (torch.xlogy(seen, seen / mean) + (seen + SHAPE) * odds).mean()
        return error
