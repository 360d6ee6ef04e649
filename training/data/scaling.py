"""Annotations made on a picture of another size: points are scaled, unless the shapes differ."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from uepnet.model.errors import DataError
from uepnet.training.data.sample import Points, upright_size

SAME_SHAPE = 0.02  # width / height may differ by this share: sides are rounded when a picture is made smaller


def to_picture(
    read: Callable[[], Points], image: Path, annotated: tuple[int, int] | None, index: Path, strict: bool = True
) -> Callable[[], Points]:
    """`read` with its points moved from the (width, height) that was annotated to the picture's own.

    A size of another shape is refused, or where that is not `strict`, ignored.
    """
    return read if annotated is None else partial(_scaled, read, image, annotated, index, strict)


def _scaled(read: Callable[[], Points], image: Path, annotated: tuple[int, int], index: Path, strict: bool) -> Points:
    points = read()
    if not image.is_file():
        return points  # reported where pixels are read
    width, height, _ = upright_size(image)
    if (width, height) == annotated:
        return points
    factors = width / annotated[0], height / annotated[1]
    if abs(factors[0] / factors[1] - 1) > SAME_SHAPE:
        if not strict:
            return points
        raise DataError(
            f"{index} annotates {image.name} at {annotated[0]} x {annotated[1]} pixels, but the picture has "
            f"{width} x {height}: it is another picture, or was turned or cut afterwards."
        )
    return np.asarray(points * np.array(factors), dtype=np.float64)
