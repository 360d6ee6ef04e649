"""How much detail the pixels of an image hold: an enlarged or blurred image has fewer real pixels than it counts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Spectra = NDArray[np.float64]  # [places, BANDS], the energy of each band around each place
Ends = NDArray[np.float64]  # [places], 1 for a sharp place

SIDE = 128  # of the patch around a place, in pixels
BANDS = 32  # of spatial frequency, up to half a cycle per pixel
# Detail ends at the frequency above which there is less than this share of the energy of the octave below it. Enlarged
# photographs then give the original resolution within a quarter, by any filter and after JPEG compression.
REST = 0.13


def spectra(image: NDArray[np.uint8], centres: Sequence[tuple[float, float]]) -> Spectra:
    """The spectrum of the patch around each centre (x, y), in pixels of the image. Spectra of places may be added."""
    height, width = image.shape[:2]
    side = min(SIDE, height, width)
    energy = np.zeros((len(centres), BANDS))
    if side < BANDS:
        return energy
    window, band = _window(side), _bands(side)
    for index, (x, y) in enumerate(centres):
        left, top = (int(np.clip(middle - side / 2, 0, length - side)) for middle, length in ((x, width), (y, height)))
        patch = image[top : top + side, left : left + side, 1].astype(np.float64)  # green: the sharpest channel
        spectrum = np.fft.rfft2((patch - patch.mean()) * window)
        power = spectrum.real**2 + spectrum.imag**2  # without the square root of a magnitude
        energy[index] = np.bincount(band, power.ravel(), BANDS + 1)[:BANDS]
    return energy


def ends(energy: Spectra) -> Ends:
    """The scale at which each place keeps its detail: where its spectrum ends, as a share of the highest frequency."""
    bands = np.arange(2, BANDS)
    above = energy[:, ::-1].cumsum(axis=1)[:, ::-1][:, bands]
    below = np.pad(energy.cumsum(axis=1), ((0, 0), (1, 0)))
    over = above < REST * (below[:, bands] - below[:, bands // 2])
    found: Ends = np.where(over.any(axis=1), bands[over.argmax(axis=1)] / BANDS, 1.0)
    return found


def _window(side: int) -> NDArray[np.float64]:
    return np.outer(np.hanning(side), np.hanning(side))


def _bands(side: int) -> NDArray[np.int64]:
    """The band of each frequency of a patch; the corners beyond half a cycle per pixel go to one more band."""
    down, across = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :]
    bands: NDArray[np.int64] = np.minimum(np.hypot(down, across) * 2 * BANDS, BANDS).astype(np.int64)
    return bands.ravel()
