"""An image at another size, whole or in parts: what a network gets that counts at a scale of its own."""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]  # [height, width, 3]
Box = tuple[int, int, int, int]  # x, y, width, height

# Of all resizing, in training as well. Pillow widens it when it shrinks, so fine detail does not turn into noise.
FILTER = Image.Resampling.BICUBIC


def scaled_size(width: int, height: int, scale: float) -> tuple[int, int]:
    return max(1, round(width * scale)), max(1, round(height * scale))


def resized(image: Pixels, scale: float) -> Pixels:
    """The image as the network gets it."""
    size = scaled_size(image.shape[1], image.shape[0], scale)
    return image if scale == 1 else resized_part(image, size, (0, 0, *size))


def resized_part(image: Pixels, size: tuple[int, int], box: Box) -> Pixels:
    """The pixels within `box` of the image resized to `size` (width, height); the rest of it is not made."""
    x, y, width, height = box
    left, right, columns = _source(x, width, size[0], image.shape[1])
    top, bottom, rows = _source(y, height, size[1], image.shape[0])
    part = Image.fromarray(image[rows, columns])
    return np.asarray(part.resize((width, height), FILTER, box=(left, top, right, bottom)))


def _source(start: int, length: int, resized_side: int, side: int) -> tuple[float, float, slice]:
    """What of an axis of the image a part comes from: its ends within the slice, and the slice the filter looks at."""
    ratio = side / resized_side
    low, high = start * ratio, (start + length) * ratio
    reach = math.ceil(2 * max(1.0, ratio)) + 1  # of the bicubic filter
    first, last = max(0, math.floor(low) - reach), min(side, math.ceil(high) + reach)
    return low - first, min(high, last) - first, slice(first, last)
