"""Weights as a safetensors file that whoever may read the folder may read."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save
from torch import Tensor


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Like safetensors' own `save_file`, which makes a file that its owner alone can read."""
    path.write_bytes(save({name: value.contiguous() for name, value in weights.items()}))
