"""Resize an image, whole or in parts: the only place that makes the pixels for the network."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]  # [height, width, 3]
Box = tuple[int, int, int, int]  # x, y, width, height

# The filter of all resizing, also in training. Pillow widens it when shrinking, which avoids aliasing.
FILTER = Image.Resampling.BICUBIC
MAX_SOURCE_PIXELS = 16_000_000


def scaled_size(width: int, height: int, scale: float) -> tuple[int, int]:
    return max(1, round(width * scale)), max(1, round(height * scale))


def resized(image: Pixels, scale: float) -> Pixels:
    """The image resized for the network."""
    size = scaled_size(image.shape[1], image.shape[0], scale)
    return image if scale == 1 else resized_part(image, size, (0, 0, *size))


def resized_part(image: Pixels, size: tuple[int, int], box: Box) -> Pixels:
    """The pixels within `box` of the image resized to `size` (width, height); the rest of it is not made.

    Pillow needs four bytes a pixel: a part that comes from very many pixels is made in strips.
    """
    x, y, width, height = box
    left, right, columns = _source(x, width, size[0], image.shape[1])
    strips = []
    for start, length in _strips(y, height, (columns.stop - columns.start) * image.shape[0] / size[1]):
        top, bottom, rows = _source(start, length, size[1], image.shape[0])
        part = Image.fromarray(image[rows, columns])
        strips.append(np.asarray(part.resize((width, length), FILTER, box=(left, top, right, bottom))))
    return strips[0] if len(strips) == 1 else np.concatenate(strips)


def _strips(start: int, length: int, pixels_a_row: float) -> Iterator[tuple[int, int]]:
    """(start, length) of strips of rows that come from no more than MAX_SOURCE_PIXELS each, as nearly as rows allow."""
    rows = max(1, int(MAX_SOURCE_PIXELS / pixels_a_row))
    for first in range(0, length, rows):
        yield start + first, min(rows, length - first)


def _source(start: int, length: int, resized_side: int, side: int) -> tuple[float, float, slice]:
    """What of an axis of the image a part comes from: its ends within the slice, and the slice the filter looks at."""
    ratio = side / resized_side
    low, high = start * ratio, (start + length) * ratio
    reach = math.ceil(2 * max(1.0, ratio)) + 1  # of the bicubic filter
    first, last = max(0, math.floor(low) - reach), min(side, math.ceil(high) + reach)
    return low - first, min(high, last) - first, slice(first, last)
