"""Local counts -> borders and proxies: the heart of the paper.

`m` counts all intervals, the background included: m - 1 borders t_0 ... t_{m-2}, the top interval open. Counts
below t_0 are background; the rest is divided so that every interval has the same n * l, samples times length
(UEP, by binary interval partition), and each interval is represented by the mean of its samples (MCP). The second,
interleaved head takes the first head's proxies as its borders (IPH).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Head
from uepnet.model.errors import DataError
from uepnet.model.intervals import classify

T_0 = 0.00016
INTERVALS = 25
PROBES = 200  # halvings of the search range: beyond the resolution of float64

Counts = NDArray[np.float64]
Method = Literal["uep", "uniform-length", "uniform-number", "two-linear", "log"]
Proxies = Literal["mean", "midpoint", "median"]
Heads = Literal["interleaved", "parallel", "single"]
# What UEP's top interval holds: the largest count alone, as in the published borders, or as much n * l as the others.
TopInterval = Literal["largest", "filled"]


@dataclass(frozen=True)
class Partition:
    """The intervals of both heads, and the data they were fitted to."""

    heads: tuple[Head, ...]
    samples: tuple[tuple[int, ...], ...]  # of each class of each head
    t_max: float

    def n_l(self, head: int) -> list[float]:
        """n * l of each interval above the background; t_max closes the top one."""
        edges = np.append(self.heads[head].borders, self.t_max)
        return [float(n * length) for n, length in zip(self.samples[head][1:], np.diff(edges), strict=True)]


def partition(
    counts: NDArray[np.floating],
    intervals: int = INTERVALS,
    method: Method = "uep",
    proxies: Proxies = "mean",
    heads: Heads = "interleaved",
    t_0: float = T_0,
    knee: float = 0.5,
    top: TopInterval = "largest",
) -> Partition:
    """Divide the local counts (any shape) into `intervals` classes for the first head, and derive the second."""
    if intervals < 3:
        raise DataError(f"A partition needs at least 3 intervals (background and two more), not {intervals}.")
    if intervals > 254:
        raise DataError(f"Class maps are bytes: at most 254 intervals, not {intervals}.")
    ordered = np.sort(np.asarray(counts, dtype=np.float64).ravel())
    if ordered.size and not np.isfinite(ordered[-1]):
        raise DataError("The local counts hold values that are not finite.")
    foreground = ordered[np.searchsorted(ordered, t_0) :]
    distinct = int(np.count_nonzero(np.diff(foreground))) + 1 if foreground.size else 0
    if distinct < intervals - 1:
        raise DataError(
            f"This data cannot be divided into {intervals} intervals: only {distinct} distinct local counts "
            f"reach {t_0:g}; use more images or fewer intervals."
        )
    t_max = float(foreground[-1])
    borders = _borders(foreground, intervals, method, t_0, knee, top)
    first = Head(borders=tuple(borders), proxies=tuple(_proxies(foreground, borders, proxies, t_max)))
    made = [first]
    if heads == "parallel":
        made.append(first)
    elif heads == "interleaved":
        made.append(_interleaved(foreground, first, t_0, proxies, t_max))
    background = ordered.size - foreground.size
    samples = tuple((background, *_samples(foreground, np.asarray(head.borders))) for head in made)
    return Partition(tuple(made), samples, t_max)


def _borders(foreground: Counts, intervals: int, method: Method, t_0: float, knee: float, top: TopInterval) -> Counts:
    t_max = float(foreground[-1])
    makers: dict[Method, Callable[[], Counts]] = {
        "uep": lambda: uniform_error(foreground, intervals, t_0, top),
        "uniform-length": lambda: np.linspace(t_0, t_max, intervals)[:-1],
        "uniform-number": lambda: uniform_number(foreground, intervals, t_0),
        "two-linear": lambda: two_linear(t_max, intervals, t_0, knee),
        "log": lambda: np.geomspace(t_0, t_max, intervals)[:-1],
    }
    if method not in get_args(Method):
        raise DataError(f"There is no partition called {method!r}: choose {', '.join(get_args(Method))}.")
    borders = makers[method]()
    if np.any(np.diff(borders) <= 0):
        raise DataError(f"Borders coincide: the data is too coarse for {intervals} intervals by {method}.")
    return borders


def uniform_error(foreground: Counts, intervals: int, t_0: float, top: TopInterval = "largest") -> Counts:
    """UEP: the m - 1 borders between which n * l is uniform, by binary search for the common n * l (Algorithm 1).

    `foreground` is sorted. A pass puts down a border as soon as (count - last border) * n exceeds the target, n
    being all samples up to and including that count: equal counts are one block, a border never splits them.

    Many targets give m - 1 borders. `largest` takes the largest of them: the pass then ends at the largest count,
    which is the last border. `filled` takes the smallest: the top interval has as much n * l as the others. The loop of
    Algorithm 1 closes in on the target at which m borders become m - 1. With m intervals it ends at `filled`; with
    m - 1, from below, at `largest`, which is what the published borders of part A agree with.
    """
    starts = np.flatnonzero(np.diff(foreground, prepend=-np.inf))
    # The distinct values, and the number of samples before each of them.
    values, before = foreground[starts], np.append(starts, foreground.size)
    low, high = 0.0, foreground.size * (float(values[-1]) - t_0)
    best: Counts | None = None
    for _ in range(PROBES):
        target = (low + high) / 2
        if target in (low, high):
            break
        borders = _pass(values, before, t_0, target, most=intervals)
        if len(borders) == intervals - 1:
            best = borders
        if len(borders) >= intervals or (len(borders) == intervals - 1 and top == "largest"):
            low = target
        else:
            high = target
    if best is None:
        raise DataError(
            f"This data cannot be divided into {intervals} intervals of equal error: many cells have the same count, "
            f"and at n*l = {high:g} the number of intervals jumps past {intervals}; try another number."
        )
    if top == "largest":
        best[-1] = values[-1]  # with few distinct counts the pass may end just below it
    return best


def _pass(values: Counts, before: NDArray[np.int64], t_0: float, target: float, most: int) -> Counts:
    """One pass of Algorithm 1: the borders for a target n * l.

    Within an interval (value - border) * n rises with the value, so each border is found by bisection. Stops past
    `most` borders: more is only ever compared with it.
    """
    borders = [t_0]
    start = 0  # index of the first distinct value whose samples belong to the current interval
    while len(borders) <= most:
        index = _first_beyond(values, before, borders[-1], start, target)
        if index == len(values):
            break
        borders.append(float(values[index]))
        start = index + 1  # as in Algorithm 1: the block that made the border has been counted
    return np.array(borders)


def _first_beyond(values: Counts, before: NDArray[np.int64], border: float, start: int, target: float) -> int:
    """The first index >= start at which (value - border) * (samples since start) exceeds the target."""
    low, high = start, len(values)
    while low < high:
        middle = (low + high) // 2
        if (values[middle] - border) * (before[middle + 1] - before[start]) > target:
            high = middle
        else:
            low = middle + 1
    return low


def uniform_number(foreground: Counts, intervals: int, t_0: float) -> Counts:
    """Borders with equally many samples between them, as far as ties allow."""
    positions = (np.arange(1, intervals - 1) * foreground.size) // (intervals - 1)
    return np.concatenate([[t_0], foreground[positions]])


def two_linear(t_max: float, intervals: int, t_0: float, knee: float) -> Counts:
    """Half of the intervals in equal steps up to `knee` (people per cell), the others in equal steps beyond it."""
    if not t_0 < knee < t_max:
        raise DataError(f"The knee must lie between {t_0:g} and the largest local count {t_max:g}, not at {knee:g}.")
    fine = (intervals - 1) // 2
    coarse = intervals - 1 - fine
    return np.concatenate([np.linspace(t_0, knee, fine + 1)[:-1], np.linspace(knee, t_max, coarse + 1)[:-1]])


def sdcnet_borders(t_max: float, t_0: float = T_0) -> Counts:
    """The steps that S-DCNet divides by: 0.05 up to 0.5 people per cell, then 0.5."""
    fine, coarse = np.arange(1, 11) * 0.05, np.arange(2, 2 * t_max + 1) * 0.5
    borders = np.concatenate([[t_0], fine, coarse])
    return borders[borders < t_max]


def liu_borders(t_max: float, t_0: float = T_0) -> Counts:
    """The steps of Liu et al. in the first author's public code (of LibraNet): e^-2, then e^0.1 times as much."""
    borders = np.concatenate([[t_0], np.exp(np.arange(-20, max(-20, math.ceil(10 * math.log(t_max)) + 1)) / 10)])
    return borders[borders < t_max]


def fixed_head(counts: NDArray[np.floating], borders: Counts, proxies: Proxies) -> Head:
    """A head with given borders, and proxies from the counts."""
    ordered = np.sort(np.asarray(counts, dtype=np.float64).ravel())
    foreground = ordered[np.searchsorted(ordered, borders[0]) :]
    return Head(borders=tuple(borders), proxies=tuple(_proxies(foreground, borders, proxies, float(ordered[-1]))))


def _interleaved(foreground: Counts, first: Head, t_0: float, proxies: Proxies, t_max: float) -> Head:
    """The second head: its borders are t_0 and the first head's proxies, so its intervals straddle the first's."""
    borders = np.array([t_0, *first.proxies[1:]])
    if np.any(np.diff(borders) <= 0):
        raise DataError(
            "The second head's borders coincide: an interval of the first head holds one value only; "
            "use more images or fewer intervals."
        )
    return Head(borders=tuple(borders), proxies=tuple(_proxies(foreground, borders, proxies, t_max)))


def _samples(foreground: Counts, borders: Counts) -> list[int]:
    edges = np.append(np.searchsorted(foreground, borders), foreground.size)
    return [int(n) for n in np.diff(edges)]


def _proxies(foreground: Counts, borders: Counts, kind: Proxies, t_max: float) -> list[float]:
    """The background's 0, then one count an interval; an interval without samples takes its midpoint."""
    edges = np.append(np.searchsorted(foreground, borders), foreground.size)
    uppers = np.append(borders[1:], max(t_max, borders[-1]))
    proxies = [0.0]
    for left, right, low, high in zip(edges, edges[1:], borders, uppers, strict=False):
        members = foreground[left:right]
        if kind == "midpoint" or members.size == 0:
            proxy = (low + high) / 2
        else:
            proxy = members.mean() if kind == "mean" else np.median(members)
        proxies.append(float(np.clip(proxy, low, high)))  # a mean of equals may leave its interval by rounding
    return proxies


def discretisation_error(count_maps: list[NDArray[np.float32]], head: Head) -> float:
    """The mean over images of |sum of counts - sum of their proxies|, every cell being classified correctly."""
    proxies = np.asarray(head.proxies)
    errors = []
    for counts in count_maps:
        exact = counts.astype(np.float64)
        errors.append(abs(float(exact.sum() - proxies[classify(exact, head.borders)].sum())))
    return float(np.mean(errors))
