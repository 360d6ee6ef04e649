"""Seams of a picture that is made of several pictures: a video wall, the quad view of a recorder, a collage.

The network sees what lies around a head: next to another picture's large heads it takes small heads for texture. Such a
picture is counted part by part, as if each part had come alone.
"""

import numpy as np
from numpy.typing import NDArray

from uepnet.model.detail import ends, spectra
from uepnet.model.regions import Box

LEAST_SIDE = 128  # of a part, in pixels
MOST_PARTS = 32
LINES = 128  # across a possible seam, that are looked at
SAMPLES = 4  # patches on each axis that tell whether the picture was enlarged after it was put together
SHARP = 0.8  # detail of most photographs; with half of it a seam is spread over two pixels
CONTRAST = 12  # levels of green: weaker jumps are noise
# A seam is a jump, twice as high as what lies on both sides of it, at the same pixel in this share of the lines. Of
# 1,528 single photographs none has more than 0.41, of mosaics of photographs most seams have 0.5 to 0.9.
SHARE = 0.44


def seamless(image: NDArray[np.uint8], cell: int) -> list[Box]:
    """The pictures (x, y, width, height) that an image [height, width, 3] is made of; one for most images.

    They cover the image and do not overlap; seams are moved to the nearest edge of a cell.
    """
    height, width = image.shape[:2]
    found: list[Box] = [(0, 0, width, height)]
    if max(width, height) < 2 * LEAST_SIDE:
        return found
    spread = _spread(image)
    index = 0
    while index < len(found):
        x, y, width, height = found[index]
        seam = _seam(image[y : y + height, x : x + width, 1], spread, cell) if len(found) < MOST_PARTS else None
        if seam is None:
            index += 1
            continue
        axis, at = seam
        first, second = ((x, y, width, at), (x, y + at, width, height - at))
        if axis == 1:
            first, second = ((x, y, at, height), (x + at, y, width - at, height))
        found[index : index + 1] = [first, second]
    return found


def _spread(image: NDArray[np.uint8]) -> int:
    """Over how many pixels a seam is spread, by the detail of the whole image."""
    height, width = image.shape[:2]
    steps = (np.arange(SAMPLES) + 0.5) / SAMPLES
    energy = spectra(image, [(x * width, y * height) for y in steps for x in steps])
    return max(1, round(SHARP / float(ends(energy.sum(axis=0, keepdims=True))[0])))


def _seam(green: NDArray[np.uint8], spread: int, cell: int) -> tuple[int, int] | None:
    """(axis, position) of the clearest seam of a part [height, width]; None where there is none."""
    best, found = SHARE, None
    for axis in (0, 1):
        length, across = green.shape[axis], green.shape[1 - axis]
        first, end = LEAST_SIDE, length - LEAST_SIDE + 1  # positions, half-open
        if first >= end or across < LEAST_SIDE:
            continue
        lines = green.take(np.linspace(0, across - 1, LINES).round().astype(int), axis=1 - axis)
        shares = _jumps(lines if axis else lines.T, spread)[first:end]
        if shares.max() > best:
            at = first + int(shares.argmax())
            best, found = float(shares.max()), (axis, round(at / cell) * cell)
    return found


def _jumps(lines: NDArray[np.uint8], spread: int) -> NDArray[np.float64]:
    """For each position the share of lines [lines, length] that jump there, and neither just before nor just after."""
    length = lines.shape[1]
    below = np.pad(lines.astype(np.int32).cumsum(axis=1), ((0, 0), (1, 0)))
    sums = below[:, spread:] - below[:, :-spread]  # of `spread` pixels from each position
    jumps = np.abs(sums[:, spread:] - sums[:, :-spread])  # [:, i]: at position i + spread
    here, beside = jumps[:, spread:-spread], np.maximum(jumps[:, : -2 * spread], jumps[:, 2 * spread :])
    shares = np.zeros(length)
    clear = here > 2 * beside + CONTRAST * spread
    shares[2 * spread : 2 * spread + clear.shape[1]] = clear.mean(axis=0)
    return shares
