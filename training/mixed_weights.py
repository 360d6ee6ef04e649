"""Weights between networks that were trained from the same weights."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

State = Mapping[str, Tensor]


def mean_weights(states: Sequence[State]) -> State:
    """The mean of networks that were trained from the same weights."""
    return {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(value.dtype)
        for name, value in states[0].items()
    }


def blend(old: State, new: State, strength: float) -> State:
    """The weights at `strength` of the way from old to new."""
    if strength == 1:
        return new
    return {
        name: (old[name].double() + strength * (value.double() - old[name].double())).to(value.dtype)
        for name, value in new.items()
    }
