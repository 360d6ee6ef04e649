"""Enlarge an image as Pillow's bicubic filter does, in half its time.

Pillow makes one value after the other. Along an axis that is a product of a matrix of pixels and one of weights, which
numpy's BLAS computes many values at a time. The pixels are Pillow's: it rounds after each axis, and so does this; of
ten thousand values a few are off by one, because sums are rounded in single precision.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # [height, width, 3]
Weights = NDArray[np.float32]
Bands = tuple[tuple[slice, slice, Weights], ...]  # what is made, what it is made of, the weights

REACH = 2  # pixels on either side that the filter looks at
BAND = 16  # rows or columns made in one product: with more of them more of the weights are zero
# Made at once, in memory that fits into the cache of a core and that malloc keeps.
PIECE_ROWS, PIECE_COLUMNS = 256, 256
# Rows in one product: BLAS starts no threads for one so small, which would take the cores from the network.
PRODUCT_ROWS = 64


def enlarge(
    image: Pixels,
    first: tuple[int, int],
    side: tuple[int, int],
    larger: tuple[int, int],
    at: tuple[int, int],
    into: Pixels,
) -> None:
    """Make a part of an image enlarged from `side` to `larger`; pairs are (x, y) or (width, height).

    `image` is what is known of it, beginning at pixel `first`; `into` takes the part that begins at pixel `at`.
    """
    height, width = into.shape[:2]
    for top in range(0, height, PIECE_ROWS):
        down = _bands(at[1] + top, min(PIECE_ROWS, height - top), side[1], larger[1])
        rows = image[down[0][1].start - first[1] : down[-1][1].stop - first[1]]
        for left in range(0, width, PIECE_COLUMNS):
            across = _bands(at[0] + left, min(PIECE_COLUMNS, width - left), side[0], larger[0], channels=3)
            pixels = rows[:, across[0][1].start // 3 - first[0] : across[-1][1].stop // 3 - first[0]]
            target = into[top : top + PIECE_ROWS, left : left + PIECE_COLUMNS]
            target[:] = _made(pixels, down, across, target.shape)


def _made(pixels: Pixels, down: Bands, across: Bands, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    """Pixels -> the part of that shape, as floats that a cast rounds."""
    height, width = shape[0], 3 * shape[1]
    left, top = across[0][1].start, down[0][1].start
    known = np.zeros((-(-len(pixels) // PRODUCT_ROWS), PRODUCT_ROWS, 3 * pixels.shape[1]), np.float32)
    known.reshape(-1, pixels.shape[1], 3)[: len(pixels)] = pixels
    wide = np.empty((*known.shape[:2], width), np.float32)
    for made, used, weights in across:
        np.matmul(known[:, :, used.start - left : used.stop - left], weights, out=wide[:, :, made])
    np.clip(np.floor(np.add(wide, 0.5, out=wide), out=wide), 0, 255, out=wide)  # halves go up, as Pillow's do
    rows = wide.reshape(-1, width)
    whole = np.empty((height, width), np.float32)
    for made, used, weights in down:
        np.matmul(weights, rows[used.start - top : used.stop - top], out=whole[made])
    np.clip(np.add(whole, 0.5, out=whole), 0, 255, out=whole)
    return whole.reshape(shape)


@lru_cache(maxsize=1024)  # images of one camera share them
def _bands(start: int, length: int, side: int, larger: int, channels: int = 1) -> Bands:
    """What makes `length` values of an axis from `start`; values of the channels of one pixel lie beside each other."""
    bands = []
    for low in range(0, length, BAND):
        high = min(low + BAND, length)
        used, weights = _weights(np.arange(start + low, start + high), side, larger)
        if channels > 1:
            weights = np.kron(weights.T, np.eye(channels)).astype(np.float32)
        made, used = (slice(part.start * channels, part.stop * channels) for part in (slice(low, high), used))
        bands.append((made, used, weights))
    return tuple(bands)


def _weights(made: NDArray[np.int64], side: int, larger: int) -> tuple[slice, Weights]:
    """The pixels of an axis that are looked at for those made, and their weights [made, looked at]."""
    centres = (made + 0.5) * side / larger
    low = np.maximum((centres - REACH + 0.5).astype(int), 0)
    high = np.minimum((centres + REACH + 0.5).astype(int), side)
    used = np.arange(low[0], high[-1])
    x = np.abs(used + 0.5 - centres[:, None])
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    weights = np.where(x < 1, near, np.where(x < REACH, far, 0.0))
    weights[(used < low[:, None]) | (used >= high[:, None])] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    return slice(int(low[0]), int(high[-1])), weights.astype(np.float32)
