"""The loss: least where counts are right in the mean, and blind where nothing is judged."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uepnet.model.artifact import Artifact
from uepnet.model.runtime import BUNDLED
from uepnet.training.losses import TrainingLoss


@given(st.floats(0, 500), st.floats(0, 500), st.floats(0.05, 0.95))
def test_the_count_loss_is_least_at_the_mean_of_what_may_be_there(low: float, high: float, chance: float) -> None:
    """Where a block holds `high` people with some chance and else `low`, the best answer is the mean of both."""
    losses = TrainingLoss(Artifact.load(BUNDLED), 1.0)

    def expected(answer: float) -> float:
        blocks = [losses._count_error(torch.full((1, 1, 1), answer), torch.full((1, 1, 1), t)) for t in (low, high)]
        return (1 - chance) * float(blocks[0]) + chance * float(blocks[1])

    mean = (1 - chance) * low + chance * high
    tolerance = 1e-5 * (1 + expected(mean))  # of single precision
    for other in (0.5 * mean, 0.9 * mean, 1.1 * mean + 0.1, 2 * mean + 1):
        assert expected(mean) <= expected(other) + tolerance


@pytest.mark.parametrize("count_loss", [0.0, 1.0])
def test_cells_that_are_not_judged_teach_nothing(count_loss: float) -> None:
    torch.manual_seed(0)
    losses = TrainingLoss(Artifact.load(BUNDLED), count_loss)
    logits = [torch.randn(2, classes, 16, 16, requires_grad=True) for classes in (25, 26)]
    counts = torch.rand(2, 16, 16)
    counts[:, :2] = torch.nan
    loss = losses(logits, counts)["loss"]
    loss.backward()
    assert loss.isfinite()
    for scores in logits:
        assert scores.grad is not None
        assert (scores.grad[:, :, :2] == 0).all() and (scores.grad[:, :, 2:] != 0).any()
