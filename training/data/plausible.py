"""Labels that are numbers, but not places of people in these pictures: fractions, percent, swapped or mirrored axes.

Coordinates alone show fractions, percent and axes that were swapped. That points are mirrored or shifted only a look
at the pictures shows: a model counts a few of them, and its count map is compared with the labels as they are and
turned in every way. The labels win unless another way fits far better.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uepnet.training.data.sample import Points
from uepnet.training.data.targets import inside

Values = NDArray[np.float64]
FEW_PEOPLE = 20  # over all pictures; fewer say nothing
CORNER = 0.02  # of a picture's shorter side: fractions that were read as percent lie in it
GRID = 12  # cells a side, in which labels and counts are compared
BLUR = 1  # cells around each: people are not found to the pixel
CLEARLY = 0.25  # by so much must another way correlate better
AGREES = 0.4  # correlation at least, of that other way

WAYS: dict[str, Callable[[Values], Values]] = {
    "mirrored left to right": lambda shares: np.array([1, 0]) + shares * np.array([-1, 1]),
    "mirrored top to bottom": lambda shares: np.array([0, 1]) + shares * np.array([1, -1]),
    "turned by 180 degrees": lambda shares: 1 - shares,
    "swapped (x is y and y is x)": lambda shares: shares[:, ::-1],
    "half of the right coordinates": lambda shares: 2 * shares,
    "twice the right coordinates": lambda shares: shares / 2,
}


@dataclass(frozen=True)
class Labels:
    """The points of one picture and its size."""

    name: str
    points: Points
    size: tuple[int, int]


def units(labels: Sequence[Labels]) -> str | None:
    """What the numbers look like instead of pixels, in words; None where they look like pixels."""
    occupied = [one for one in labels if len(one.points)]
    people = sum(len(one.points) for one in occupied)
    if people < FEW_PEOPLE:
        return None
    points = np.concatenate([one.points for one in occupied])
    least, largest = float(points.min()), float(points.max())
    least_side = min(min(one.size) for one in occupied)
    # Readers move 0-based pixels by half a pixel to their centres.
    if least >= -0.5 and largest <= 1.5:
        return "look like fractions of the picture (all are at most 1), not pixels"
    if least >= -0.5 and largest <= CORNER * least_side:
        return "look like shares of the picture in a wrong unit: all lie in its upper left corner"
    if least >= -0.5 and largest <= 100.5 and least_side > 200 and _fills(points, 100):
        return "look like percent of the picture (none exceeds 100, and they fill that range), not pixels"
    if _swapped(occupied):
        return "look swapped: many lie outside as they are, and none with x and y exchanged"
    return None


def _fills(points: Points, top: float) -> bool:
    """Whether the points reach over most of 0 ... top in both directions."""
    low, high = np.quantile(points, 0.05, axis=0), np.quantile(points, 0.95, axis=0)
    return bool(((high - low) > 0.6 * top).all())


def _swapped(labels: Iterable[Labels]) -> bool:
    outside = exchanged = people = 0
    for one in labels:
        people += len(one.points)
        outside += len(one.points) - int(inside(one.points, *one.size).sum())
        exchanged += len(one.points) - int(inside(one.points[:, ::-1], *one.size).sum())
    return outside > 0.05 * people and exchanged < 0.1 * outside


def better_way(labels: Sequence[Labels], seen: Sequence[Values]) -> str | None:
    """How the labels would fit what a model sees far better than as they are; None where they fit.

    `seen`: the model's count map of each picture.
    """
    if sum(len(one.points) for one in labels) < FEW_PEOPLE:
        return None
    counted = np.stack([_coarse(_places(counts), counts.ravel()) for counts in seen])
    shares = [one.points / np.array(one.size) for one in labels]
    own = _agreement([_coarse(places) for places in shares], counted)
    found = {way: _agreement([_coarse(turn(places)) for places in shares], counted) for way, turn in WAYS.items()}
    best = max(found, key=lambda way: found[way])
    return best if found[best] > own + CLEARLY and found[best] > AGREES else None


def _agreement(labelled: Sequence[Values], counted: Values) -> float:
    """The correlation of labels and counts over the cells of all pictures."""
    left, right = np.stack(labelled).ravel(), counted.ravel()
    return float(np.corrcoef(left, right)[0, 1]) if left.std() and right.std() else 0.0


def _places(counts: Values) -> Values:
    """The centre of each cell as shares of the picture, [cells, 2] as x, y."""
    rows, columns = counts.shape
    y, x = np.mgrid[0:rows, 0:columns]
    return np.stack([(x.ravel() + 0.5) / columns, (y.ravel() + 0.5) / rows], axis=1)


def _coarse(places: Values, weights: Values | None = None) -> Values:
    """People per cell of a coarse grid, each spread over the cells around."""
    sums, _, _ = np.histogram2d(places[:, 1], places[:, 0], bins=GRID, range=((0, 1), (0, 1)), weights=weights)
    padded = np.pad(sums, BLUR)
    size = 2 * BLUR + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size))
    return np.asarray(windows.mean(axis=(2, 3)))
