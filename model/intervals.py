"""Borders and proxies: count -> class, class -> count.

Borders t_0 < t_1 < ... divide the counts into len(borders) + 1 intervals. Class 0 is the background, [0, t_0);
class i is [t_{i-1}, t_i); the last interval has no upper border.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def classify(counts: ArrayLike, borders: ArrayLike) -> NDArray[np.uint8]:
    """The class of each count, same shape as `counts`; a count equal to a border belongs to the interval above it."""
    return np.searchsorted(np.asarray(borders), np.asarray(counts), side="right").astype(np.uint8)


def proxy_counts(classes: NDArray[np.uint8], proxies: ArrayLike) -> NDArray[np.float32]:
    """The proxy count of each class, same shape as `classes`."""
    return np.asarray(proxies, dtype=np.float32)[classes]
