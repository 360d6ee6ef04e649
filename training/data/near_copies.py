"""Pictures that are nearly the same, such as neighbouring frames of a video.

If they are spread over several splits, every error looks better than it is.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.file_names import natural

Print = NDArray[np.float32]  # [SIDE * SIDE], grey, without its mean, of length 1
Named = tuple[str, Print]
SIDE = 24
FEW = 4  # pictures: fewer do not show how much ours resemble each other
COMPARED = 300  # of ours, with each other
NEARER = 0.4  # of the way from the usual resemblance to 1
ALIKE = 0.985  # correlation of prints from which on two pictures show the same scene in the same minute


def print_of(pixels: NDArray[np.uint8]) -> Print:
    """What a picture looks like from afar."""
    small = np.asarray(Image.fromarray(pixels).convert("L").resize((SIDE, SIDE), reducing_gap=2), np.float32).ravel()
    small = small - small.mean()
    length = float(np.linalg.norm(small))
    return np.asarray(small / max(length, 1e-6), np.float32)


def nearest(ours: Sequence[Print], others: Sequence[Print]) -> list[tuple[int, float]]:
    """For each of ours the most similar of the others, and how similar."""
    similar = np.stack(ours) @ np.stack(others).T
    best = similar.argmax(axis=1)
    return [(int(index), float(similar[row, index])) for row, index in enumerate(best)]


def spread_over(ours: Sequence[Named], others: Sequence[Named]) -> tuple[str, str] | None:
    """Where frames of one video are spread over two splits: a picture of the others, and its neighbour among ours.

    By name most of the others stand right beside one of ours, and resemble it far more than ours resemble each other.
    """
    if len(ours) < FEW or not others:
        return None
    order = sorted([(name, look, True) for name, look in ours] + [(name, look, False) for name, look in others],
                   key=lambda one: natural(one[0]))  # fmt: skip
    beside = [
        (float(left[1] @ right[1]), right[0] if left[2] else left[0], left[0] if left[2] else right[0])
        for left, right in pairwise(order)
        if left[2] != right[2]
    ]
    if 2 * len({other for _, other, _ in beside}) < len(others):
        return None
    some = np.stack([look for _, look in ours[:: -(-len(ours) // COMPARED)]])
    usual = float(np.median((some @ some.T)[np.triu_indices(len(some), 1)]))
    beside.sort()
    similar, other, own = beside[len(beside) // 2]
    return (other, own) if similar > usual + NEARER * (1 - usual) else None


def share_alike(prints: Sequence[Print]) -> float:
    """The share of pictures that resemble their neighbour in the order given."""
    if len(prints) < 2:
        return 0.0
    alike = [float(left @ right) >= ALIKE for left, right in pairwise(prints)]
    return float(np.mean(alike))
