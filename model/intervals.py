"""Borders and proxies: count -> class, class -> count.

Borders t_0 < t_1 < ... cut the counts into len(borders) + 1 intervals. Class 0 is the background, [0, t_0);
class i is [t_{i-1}, t_i); the last one is open above.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def classify(counts: ArrayLike, borders: ArrayLike) -> NDArray[np.uint8]:
    """The interval of each count, in the counts' shape; a count on a border belongs to the right interval."""
    return np.searchsorted(np.asarray(borders), np.asarray(counts), side="right").astype(np.uint8)


def proxy_counts(classes: NDArray[np.uint8], proxies: ArrayLike) -> NDArray[np.float32]:
    """The count that stands for each class, in the classes' shape."""
    return np.asarray(proxies, dtype=np.float32)[classes]
