"""Resize an image, whole or in parts: the only place that makes the pixels for the network."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.enlarge import enlarge

Pixels = NDArray[np.uint8]  # [height, width, 3]
Box = tuple[int, int, int, int]  # x, y, width, height

# The filter of all resizing, also in training. Pillow widens it when shrinking, which avoids aliasing.
FILTER = Image.Resampling.BICUBIC
MAX_SOURCE_PIXELS = 16_000_000
ENLARGED = 1.2  # from here on `enlarge` is faster than Pillow
NEARLY = 1.02  # blocks are averaged also where the filter then has to enlarge them by so much again


def scaled_size(width: int, height: int, scale: float) -> tuple[int, int]:
    return max(1, round(width * scale)), max(1, round(height * scale))


def resized(image: Pixels, scale: float) -> Pixels:
    """The image resized for the network."""
    size = scaled_size(image.shape[1], image.shape[0], scale)
    return image if scale == 1 else resized_part(image, size, (0, 0, *size))


def resized_part(image: Pixels, size: tuple[int, int], box: Box, into: Pixels | None = None) -> Pixels:
    """The pixels within `box` of the image resized to `size` (width, height); the rest of it is not made.

    They are written `into` an array of their shape, where one is given. Where the image shrinks to half and less, whole
    blocks of pixels are averaged first: the filter would look at each pixel many times. Pillow needs four bytes a
    pixel: a part that comes from very many pixels is made in strips.
    """
    x, y, width, height = box
    made = np.empty((height, width, 3), np.uint8) if into is None else into
    block = max(1, int(min(image.shape[1] / size[0], image.shape[0] / size[1]) * NEARLY))
    left, right, columns = _source(x, width, size[0], image.shape[1], block)
    for start, length in _strips(y, height, (columns.stop - columns.start) * image.shape[0] / size[1]):
        top, bottom, rows = _source(start, length, size[1], image.shape[0], block)
        part, strip = image[rows, columns], made[start - y : start - y + length]
        if min(size[0] / image.shape[1], size[1] / image.shape[0]) >= ENLARGED:
            side = (image.shape[1], image.shape[0])
            enlarge(part, (columns.start, rows.start), side, size, (x, start), strip)
            continue
        known = Image.fromarray(part)
        if block > 1:
            known = known.reduce(block)
        within = (left, top, min(right, known.width), min(bottom, known.height))
        strip[:] = np.asarray(known.resize((width, length), FILTER, box=within))
    return made


def _strips(start: int, length: int, pixels_a_row: float) -> Iterator[tuple[int, int]]:
    """(start, length) of strips of rows that come from no more than MAX_SOURCE_PIXELS each, as nearly as rows allow."""
    rows = max(1, int(MAX_SOURCE_PIXELS / pixels_a_row))
    for first in range(0, length, rows):
        yield start + first, min(rows, length - first)


def _source(start: int, length: int, resized_side: int, side: int, block: int) -> tuple[float, float, slice]:
    """What of an axis of the image a part comes from: its ends within the slice, in blocks, and the slice of whole
    blocks that the filter looks at."""
    ratio = side / resized_side
    low, high = start * ratio, (start + length) * ratio
    reach = (math.ceil(2 * max(1.0, ratio / block)) + 1) * block  # of the bicubic filter
    first = max(0, math.floor(low) - reach) // block * block
    last = min(side, -(-(math.ceil(high) + reach) // block) * block)
    return (low - first) / block, (min(high, last) - first) / block, slice(first, last)
