"""Held-back images -> the range of a count, by split conformal prediction with the exported model.

Errors grow with the crowd, so residuals are measured in units of (count + offset) ** power; the power is the one
under which they are most alike over the counts. Of the sizes of the scaled residuals |truth - count| / scale the
largest are cut off by rank, with the finite-sample correction: for a new image of the same kind, the truth lies inside
with a chance of at least `level`, whatever the errors' distribution. Both sides get the same width: a few dozen images
overstate whether a model counts too high or too low, and a range that leans would miss on the next camera.

Several data sets are several kinds of scene. Each has the same weight, however many images it has, and the scale also
follows the network's doubt (`model.count`), which tells a difficult scene from an easy one with as many people.
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
ENOUGH_FOR_KINDS = 60  # images of all data sets together; fewer do not show what doubt is worth
RIDGE = 3.0  # holds the exponents near 0 where few images speak for more
POWERS = tuple(np.round(np.arange(0.4, 1.01, 0.05), 2))

Values = NDArray[np.float64]


def calibrate(groups: Sequence[Sequence[Result]], level: float = LEVEL) -> Calibration:
    """The range fitted to the results of one or several data sets."""
    results = [result for group in groups for result in group]
    counts = np.array([result.counted for result in results])
    truths = np.array([result.truth for result in results], dtype=np.float64)
    doubts = [result.count.doubt for result in results]
    if len(groups) == 1 or len(results) < ENOUGH_FOR_KINDS or None in doubts:
        return fit(counts, truths, level)
    weights = np.concatenate([np.full(len(group), 1 / max(1, len(group))) for group in groups])
    return fit_kinds(counts, truths, np.array(doubts, dtype=np.float64), weights, level)


def fit_kinds(counts: Values, truths: Values, doubts: Values, weights: Values, level: float = LEVEL) -> Calibration:
    """The range of scenes of several kinds: the scale is fitted to the sizes of the errors, on logarithms."""
    bounds = np.quantile(doubts, [0.05, 0.95])
    sizes, weights = np.abs(truths - counts), weights / weights.mean()
    log_doubts = np.log(np.clip(doubts, *bounds))
    terms = np.stack([np.ones_like(counts), np.log(counts + OFFSET), log_doubts], axis=1)
    terms[:, 1:] -= np.average(terms[:, 1:], axis=0, weights=weights)
    # Half a person and 2 % of the count are added: the logarithm of an error near zero would decide alone.
    wanted = np.log(sizes + 0.5 + 0.02 * counts)
    weighted = terms * weights[:, None]
    _, power, trust = np.linalg.solve(weighted.T @ terms + np.diag([0.0, RIDGE, RIDGE]), weighted.T @ wanted)
    power, trust = round(float(np.clip(power, 0, 1)), 2), round(float(np.clip(trust, 0, 2)), 2)
    scaled = sizes / ((counts + OFFSET) ** power * np.clip(doubts, *bounds) ** trust)
    order = np.argsort(scaled)
    reached = np.cumsum(weights[order]) / (weights.sum() + weights.max())  # one more image of the rarest kind
    width = float(scaled[order][min(len(order) - 1, int(np.searchsorted(reached, level)))])
    return Calibration(
        level=level,
        low=-width,
        high=width,
        offset=OFFSET,
        power=power,
        trust=trust,
        doubts=(float(bounds[0]), float(bounds[1])),
        images=len(counts),
    )


def fit(counts: Values, truths: Values, level: float = LEVEL) -> Calibration:
    least = math.ceil(round(1 / (1 - level), 6)) - 1  # 1 - 0.9 is not 0.1 in binary
    if len(counts) < least:
        raise DataError(f"A range of {level:.0%} needs at least {least} held-back images, not {len(counts)}.")
    power = scaling_power(counts, truths)
    sizes = np.sort(np.abs(truths - counts) / (counts + OFFSET) ** power)
    rank = math.ceil(round(level * (len(sizes) + 1), 6))  # one more image: the finite-sample correction
    width = float(sizes[rank - 1])
    return Calibration(level=level, low=-width, high=width, offset=OFFSET, power=power, images=len(sizes))


def scaling_power(counts: Values, truths: Values) -> float:
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
