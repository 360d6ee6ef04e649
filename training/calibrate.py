"""Held-back images -> the range around a count, by split conformal prediction through the model that is served.

Errors grow with the crowd, so residuals are measured in units of (count + offset) ** power; the power is the one
under which they are most alike over the counts. Of the scaled residuals (truth - count) / scale, the two tails are
cut off by rank, with the finite-sample correction: for a new image of the same kind, the truth lies inside with a
chance of at least `level`, whatever the errors' distribution.
"""

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
    tail = round((1 - level) / 2, 9)  # each of the two; 1 - 0.9 is not 0.1 in binary
    least = int(np.ceil(round(1 / tail, 6))) - 1
    if len(counts) < least:
        raise DataError(f"A range of {level:.0%} needs at least {least} held-back images, not {len(counts)}.")
    power = _power(counts, truths)
    scaled = np.sort((truths - counts) / (counts + OFFSET) ** power)
    # Ranks of the two tails, each with half of 1 - level: floor and ceiling are the finite-sample correction.
    images = len(scaled)
    low = int(np.floor(round(tail * (images + 1), 6))) - 1
    high = int(np.ceil(round((1 - tail) * (images + 1), 6))) - 1
    return Calibration(
        level=level,
        low=float(scaled[max(low, 0)]),
        high=float(scaled[min(high, images - 1)]),
        offset=OFFSET,
        power=power,
        images=images,
    )


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
