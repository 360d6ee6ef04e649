"""Points -> local-count map: how many people each cell holds, in closed form.

Each person is a Gaussian. The mass of a separable Gaussian inside a cell is a product of two differences of the
normal CDF, so no density map is ever built. The mass is normalised over the image: the cells of an image sum to
the people inside its frame, whatever the kernel's width.

Coordinates are continuous: the image is [0, width) x [0, height), the centre of pixel (i, j) is (i + 0.5, j + 0.5).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import ndtr

from uepnet.model.errors import DataError

if TYPE_CHECKING:
    from uepnet.training.data.sample import Sample

CountMap = NDArray[np.float32]  # [rows, columns], people per cell

SMALLEST_SIGMA = 0.1  # people marked twice at the same spot have no distance; keeps the CDF finite


@dataclass(frozen=True, slots=True)
class Kernel:
    """Width of the Gaussian of a person: `fixed` pixels, or 0.3 x the mean distance of 3 neighbours within bounds."""

    fixed: float | None = None
    smallest: float = SMALLEST_SIGMA
    largest: float = np.inf

    def sigmas(self, points: NDArray[np.float64], width: float, height: float) -> NDArray[np.float64]:
        """The width of each person's Gaussian, from all points of the whole image."""
        if self.fixed is not None:
            return np.full(len(points), self.fixed)
        return np.clip(_neighbour_sigmas(points, width, height), self.smallest, self.largest)


def parse_kernel(text: str) -> Kernel | None:
    """The kernel that a setting names: fixed:SIGMA, adaptive or adaptive:SMALLEST:LARGEST; None for an empty text."""
    kind, *numbers = text.split(":")
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        kind, values = "wrong", []
    match kind, values:
        case "", []:
            return None
        case "fixed", [sigma] if 0 < sigma < np.inf:
            return Kernel(fixed=sigma)
        case "adaptive", []:
            return Kernel()
        case "adaptive", [smallest, largest] if 0 < smallest <= largest:
            return Kernel(smallest=smallest, largest=largest)
    raise DataError(f"A kernel is fixed:SIGMA, adaptive or adaptive:SMALLEST:LARGEST, not {text!r}.")


def _neighbour_sigmas(points: NDArray[np.float64], width: float, height: float) -> NDArray[np.float64]:
    if len(points) < 2:
        return np.full(len(points), 0.1 * min(width, height))
    neighbours = min(3, len(points) - 1)
    distances, _ = cKDTree(points).query(points, k=neighbours + 1)
    mean: NDArray[np.float64] = np.asarray(distances)[:, 1:].mean(axis=1)
    return 0.3 * mean


def inside(points: NDArray[np.float64], width: float, height: float) -> NDArray[np.bool_]:
    """Which points lie within the frame."""
    x, y = points[:, 0], points[:, 1]
    return (x >= 0) & (x < width) & (y >= 0) & (y < height)


def local_counts(
    points: NDArray[np.float64],
    sigmas: NDArray[np.float64],
    size: tuple[float, float],
    cell: int,
    crop: tuple[int, int, int, int] | None = None,
) -> NDArray[np.float32]:
    """People per cell, [rows, columns], of the image of `size` (width, height) or of its crop (x, y, width, height).

    People outside the frame are left out; people outside the crop spill into it. The area beyond the edge
    of the image has no people.
    """
    width, height = size
    x, y, crop_width, crop_height = crop or (0, 0, width, height)
    columns, rows = int(np.ceil(crop_width / cell)), int(np.ceil(crop_height / cell))
    x_edges = np.clip(x + cell * np.arange(columns + 1.0), 0, width)
    y_edges = np.clip(y + cell * np.arange(rows + 1.0), 0, height)
    here = inside(points, width, height)
    if crop is not None:  # a Gaussian is negligible beyond eight sigmas
        reach = 8 * sigmas
        here &= (points[:, 0] > x - reach) & (points[:, 0] < x + crop_width + reach)
        here &= (points[:, 1] > y - reach) & (points[:, 1] < y + crop_height + reach)
    points, sigmas = points[here], sigmas[here]
    across = _axis_masses(points[:, 0], sigmas, x_edges, width)
    down = _axis_masses(points[:, 1], sigmas, y_edges, height)
    return (down.T @ across).astype(np.float32)


def _axis_masses(
    centres: NDArray[np.float64], sigmas: NDArray[np.float64], edges: NDArray[np.float64], length: float
) -> NDArray[np.float64]:
    """The share of each Gaussian between consecutive edges, of its share within [0, length]: [people, cells]."""
    centres, sigmas = centres[:, None], sigmas[:, None]
    cumulated = ndtr((edges - centres) / sigmas)
    whole = ndtr((length - centres) / sigmas) - ndtr(-centres / sigmas)
    return np.diff(cumulated, axis=1) / whole


def count_maps(
    samples: Sequence["Sample"], cell: int, kernel: Kernel | None = None, scale: float = 1.0
) -> list[CountMap]:
    """The true local counts of each image, resized by `scale`."""
    maps = []
    for sample in samples:
        points, size = sample.points * scale, (sample.size[0] * scale, sample.size[1] * scale)
        maps.append(local_counts(points, (kernel or sample.kernel).sigmas(points, *size), size, cell))
    return maps


def local_counts_of(
    samples: Sequence["Sample"], cell: int, kernel: Kernel | None = None, scale: float = 1.0
) -> CountMap:
    """The true local counts of all images, in one row."""
    return np.concatenate([counts.ravel() for counts in count_maps(samples, cell, kernel, scale)])
