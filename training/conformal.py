"""A range from few pictures: cross-conformal, so that every picture both trains and calibrates.

Each picture is counted by a network that was trained without it and without its neighbours. The residuals of all
pictures give the range of the network that is served, which is the mean of these networks (`training.finetune`).

Consecutive pictures resemble each other, so that n of them are worth fewer: the finite-sample correction uses that
smaller number. Where it is too small for the level, a Student t distribution of the residuals takes the place of
their ranks. There is always a range, wide if need be.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from uepnet.model.artifact import Calibration
from uepnet.model.errors import DataError
from uepnet.training.calibrate import LEVEL, OFFSET, Values, scaling_power
from uepnet.training.folds import independent

FEWEST = 5  # pictures; a spread of fewer means nothing
LEAST_WIDTH = 0.05  # of a range, in scaled residuals: nobody counts without any error
ENOUGH_FOR_POWER = 30  # pictures; fewer do not show how errors grow with the count
USUAL_POWER = 0.7


def fit(counts: Sequence[float], truths: Sequence[float], level: float = LEVEL) -> Calibration:
    """The range fitted to counts by networks that had not seen the pictures, in the pictures' order."""
    counted, true = np.asarray(counts, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    if len(counted) < FEWEST:
        raise DataError(f"A range needs at least {FEWEST} pictures, not {len(counted)}.")
    power = scaling_power(counted, true) if len(counted) >= ENOUGH_FOR_POWER else USUAL_POWER
    residuals = (true - counted) / (counted + OFFSET) ** power
    width = max(LEAST_WIDTH, _width(residuals, level))
    return Calibration(level=level, low=-width, high=width, offset=OFFSET, power=power, images=len(counted))


def _width(residuals: Values, level: float) -> float:
    worth = independent(residuals)
    share = level * (1 + 1 / worth)  # one more picture: the finite-sample correction
    sizes = np.sort(np.abs(residuals))
    if share <= 1:
        return float(sizes[min(len(sizes), math.ceil(round(share * len(sizes), 6))) - 1])
    freedom = max(2.0, worth - 1)
    student = float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(1 + 1 / worth)
    return max(float(sizes[-1]), student * float(np.sqrt(np.mean(residuals**2))))


def coverage(counts: Sequence[float], truths: Sequence[float], blocks: Sequence[Sequence[int]]) -> float:
    """How often the truth lies in the range that was fitted without the picture's block."""
    counted, true = np.asarray(counts, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    inside = []
    for block in blocks:
        others = np.setdiff1d(np.arange(len(counted)), np.asarray(block, dtype=np.intp))
        fitted = fit(counted[others].tolist(), true[others].tolist())
        for index in block:
            low, high = fitted.range(float(counted[index]))
            inside.append(low <= true[index] <= high)
    return float(np.mean(inside))
