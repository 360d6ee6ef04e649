"""Held-back images -> the range around a count, by split conformal prediction through the model that is served.

Errors grow with the crowd, so residuals are measured in units of (count + offset) ** power; the power is the one
under which they are most alike over the counts. Of the sizes of the scaled residuals |truth - count| / scale the
largest are cut off by rank, with the finite-sample correction: for a new image of the same kind, the truth lies inside
with a chance of at least `level`, whatever the errors' distribution. Both sides get the same width: a few dozen images
overstate whether a model counts too high or too low, and a range that leans would miss on the next camera.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Calibration
from uepnet.model.errors import DataError
from uepnet.training.evaluate import Result

LEVEL = 0.9
OFFSET = 5.0
POWERS = tuple(np.round(np.arange(0.4, 1.01, 0.05), 2))

Values = NDArray[np.float64]


def calibrate(results: Sequence[Result], level: float = LEVEL) -> Calibration:
    counts = np.array([result.counted for result in results])
    truths = np.array([result.truth for result in results], dtype=np.float64)
    return fit(counts, truths, level)


def fit(counts: Values, truths: Values, level: float = LEVEL) -> Calibration:
    least = math.ceil(round(1 / (1 - level), 6)) - 1  # 1 - 0.9 is not 0.1 in binary
    if len(counts) < least:
        raise DataError(f"A range of {level:.0%} needs at least {least} held-back images, not {len(counts)}.")
    power = _power(counts, truths)
    sizes = np.sort(np.abs(truths - counts) / (counts + OFFSET) ** power)
    rank = math.ceil(round(level * (len(sizes) + 1), 6))  # one more image: the finite-sample correction
    width = float(sizes[rank - 1])
    return Calibration(level=level, low=-width, high=width, offset=OFFSET, power=power, images=len(sizes))


def _power(counts: Values, truths: Values) -> float:
    """The power under which the size of scaled residuals is least correlated with the count."""
    sizes = np.abs(truths - counts)
    order = np.argsort(np.argsort(counts))

    def dependence(power: float) -> float:
        scaled = sizes / (counts + OFFSET) ** power
        ranks = np.argsort(np.argsort(scaled))
        return abs(float(np.corrcoef(order, ranks)[0, 1]))

    return float(min(POWERS, key=dependence))


def coverage_left_out(counts: Values, truths: Values, level: float = LEVEL) -> float:
    """How often the truth lies in a range that was fitted without its image: an honest estimate from the same data."""
    inside = []
    for index in range(len(counts)):
        others = np.arange(len(counts)) != index
        low, high = fit(counts[others], truths[others], level).range(float(counts[index]))
        inside.append(low <= truths[index] <= high)
    return float(np.mean(inside))
