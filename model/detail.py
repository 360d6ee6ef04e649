"""How much detail the pixels of an image hold: an enlarged or blurred image has fewer real pixels than it counts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SIDE = 128  # of a sampled patch, in pixels
PATCHES = 48  # sampled at most: their spectra add up
BANDS = 32  # of spatial frequency, up to half a cycle per pixel
# Detail ends at the frequency above which there is less than this share of the energy of the octave below it. Enlarged
# photographs then give the original resolution within a quarter, by any filter and after JPEG compression.
REST = 0.13


def detail(image: NDArray[np.uint8], centres: Sequence[tuple[float, float]]) -> float:
    """The scale at which the image keeps its detail, 1 for a sharp one; sampled around centres (x, y) in pixels."""
    height, width = image.shape[:2]
    side = min(SIDE, height, width)
    if side < BANDS or not centres:
        return 1.0
    chosen = np.unique(np.linspace(0, len(centres) - 1, PATCHES).round().astype(int))
    window, band = _window(side), _bands(side)
    energy = np.zeros(BANDS + 1)
    for x, y in (centres[index] for index in chosen):
        left, top = (int(np.clip(middle - side / 2, 0, length - side)) for middle, length in ((x, width), (y, height)))
        patch = image[top : top + side, left : left + side, 1].astype(np.float64)  # green: the sharpest channel
        spectrum = np.abs(np.fft.rfft2((patch - patch.mean()) * window)) ** 2
        energy += np.bincount(band, spectrum.ravel(), BANDS + 1)
    return _end(energy[:BANDS])


def _window(side: int) -> NDArray[np.float64]:
    return np.outer(np.hanning(side), np.hanning(side))


def _bands(side: int) -> NDArray[np.int64]:
    """The band of each frequency of a patch; the corners beyond half a cycle per pixel go to one more band."""
    down, across = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :]
    bands: NDArray[np.int64] = np.minimum(np.hypot(down, across) * 2 * BANDS, BANDS).astype(np.int64)
    return bands.ravel()


def _end(energy: NDArray[np.float64]) -> float:
    """Where detail ends, as a share of the highest frequency."""
    above = np.append(energy[::-1].cumsum()[::-1], 0.0)
    for band in range(2, BANDS):
        if above[band] < REST * energy[band // 2 : band].sum():
            return band / BANDS
    return 1.0
