"""Class maps -> count map -> density map.

Each head predicts the interval of a cell's count. The count of the cell is the mean over the heads of the proxies of
these intervals, as in the paper. With the decodings `expectation` and `regression` the graph already computes the
counts. A count map holds people per cell, a density map people per pixel.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Artifact
from uepnet.model.intervals import proxy_counts

Counts = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """The outputs of the network for a tile, or for an image once stitched; all maps are [rows, columns]."""

    classes: tuple[NDArray[np.uint8], ...]  # one map per head; empty for a regression network
    counts: Counts | None = None
    variance: Counts | None = None
    familiarity: Counts | None = None

    def mirrored(self) -> "Maps":
        """The maps with left and right exchanged."""
        return Maps(
            classes=tuple(classes[:, ::-1] for classes in self.classes),
            counts=None if self.counts is None else self.counts[:, ::-1],
            variance=None if self.variance is None else self.variance[:, ::-1],
            familiarity=None if self.familiarity is None else self.familiarity[:, ::-1],
        )


def count_map(maps: Maps, artifact: Artifact) -> Counts:
    """People per cell [rows, columns], decoded as the artifact says."""
    if artifact.decoding != "argmax":
        if maps.counts is None:
            raise ValueError(f"decoding {artifact.decoding} needs the graph's counts")
        return maps.counts
    heads = zip(maps.classes, artifact.heads, strict=True)
    counts = np.stack([proxy_counts(classes, head.proxies) for classes, head in heads])
    mean: Counts = counts.mean(axis=0, dtype=np.float32)
    return mean


def cell_extents(length: int, cell: int) -> NDArray[np.int64]:
    """Pixels that each cell covers along an axis: `cell`, or less for a last cell cut by the edge of the image."""
    edges = np.minimum(np.arange(0, length + cell, cell), length)
    return np.diff(edges)


def density_map(count_map: Counts, width: int, height: int, cell: int) -> Counts:
    """People per pixel [height, width]: the count of a cell is spread evenly over the pixels that it covers."""
    rows, columns = cell_extents(height, cell), cell_extents(width, cell)
    density = count_map / np.outer(rows, columns).astype(np.float32)
    return np.repeat(np.repeat(density, rows, axis=0), columns, axis=1)


def regrid(count_map: Counts, size: tuple[int, int], scaled: tuple[int, int], cell: int) -> Counts:
    """People per cell of an image of `size` (width, height), from the count map of the image at `scaled`.

    The count of a cell is spread evenly over its area and collected by the cells of the image: the sum is kept.
    """
    (width, height), (scaled_width, scaled_height) = size, scaled
    gathered = _regrid_rows(count_map.astype(np.float64), height, scaled_height, cell)
    gathered = _regrid_rows(gathered.T, width, scaled_width, cell).T
    return gathered.astype(np.float32)


def _regrid_rows(counts: NDArray[np.float64], length: int, scaled: int, cell: int) -> NDArray[np.float64]:
    """`counts` [rows of the scaled axis, any] -> [rows of the axis, any]; sums over rows stay as they are."""
    below = np.vstack([np.zeros_like(counts[:1]), counts.cumsum(axis=0)])  # people before each scaled edge
    edges = np.minimum(np.arange(0, length + cell, cell), length) / length
    scaled_edges = np.minimum(np.arange(0, scaled + cell, cell), scaled) / scaled
    position = np.interp(edges, scaled_edges, np.arange(len(scaled_edges)))
    lower = np.minimum(position.astype(np.int64), len(counts) - 1)
    weight = (position - lower)[:, None]
    before = below[lower] + (below[lower + 1] - below[lower]) * weight
    gathered: NDArray[np.float64] = np.diff(before, axis=0)
    return np.maximum(gathered, 0, out=gathered)  # rounding may make an empty cell slightly negative
