"""Cross-validation for pictures of one camera: folds and blocks of consecutive pictures.

Neighbouring frames of a video are nearly copies. Folds drawn at random would test on copies of what was trained on,
and every error would look better than on later frames. Consecutive pictures, in natural order, stay together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Values = NDArray[np.float64]
BLOCKS = 10  # of consecutive pictures, for the uncertainty of a mean
LEVEL = 0.9
MOST_ALIKE = 0.9  # correlation of neighbours: beyond it a few pictures say nothing


def folds(number: int, parts: int) -> list[NDArray[np.intp]]:
    """The indices of 0 ... number - 1 in `parts` runs of consecutive ones, of nearly equal length."""
    return [part for part in np.array_split(np.arange(number), parts) if len(part)]


def spread(number: int, wanted: int) -> list[int]:
    """About `wanted` indices, evenly spread over 0 ... number - 1."""
    return sorted({round(index) for index in np.linspace(0, number - 1, min(number, wanted))})


@dataclass(frozen=True)
class Mean:
    """A mean with its standard error, and how many independent values it is made of."""

    value: float
    error: float
    worth: float = math.inf

    @property
    def bounds(self) -> tuple[float, float]:
        """Between them the true mean lies with a chance of about 90 %."""
        wide = float(stats.t.ppf((1 + LEVEL) / 2, max(2.0, self.worth - 1))) * self.error
        return self.value - wide, self.value + wide


def mean_of(values: Sequence[float] | Values) -> Mean:
    """The mean of consecutive values, which resemble their neighbours.

    Its error is that of the means of blocks, or by the correlation of neighbours, whichever is larger: blocks of a
    few pictures are too short to be independent.
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2:
        return Mean(float(array.mean()), math.inf)
    blocks = np.array([block.mean() for block in np.array_split(array, min(BLOCKS, len(array)))])
    worth = _worth(len(array), _neighbours(array, unbiased=True))
    errors = blocks.std(ddof=1) / math.sqrt(len(blocks)), array.std(ddof=1) / math.sqrt(worth)
    return Mean(float(array.mean()), float(max(errors)), worth)


def independent(values: Sequence[float] | Values) -> float:
    """How many independent values these consecutive ones are worth, by the correlation of neighbours."""
    array = np.asarray(values, dtype=np.float64)
    return _worth(len(array), _neighbours(array))


def _neighbours(array: Values, unbiased: bool = False) -> float:
    """The correlation of neighbours; of few values it is estimated too low by about (1 + 3 correlation) / number."""
    number = len(array)
    if number < 4 or not array.std():
        return 0.0
    centred = array - array.mean()
    products = centred[1:] * centred[:-1]
    if unbiased:
        found = (number * float(products.sum() / (centred**2).sum()) + 1) / (number - 3)
    else:
        found = float(products.mean() / (centred**2).mean())
    return min(MOST_ALIKE, max(0.0, found))


def _worth(number: int, correlation: float) -> float:
    return number * (1 - correlation) / (1 + correlation)
