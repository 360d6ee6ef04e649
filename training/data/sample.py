"""One annotated image of any data set."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.errors import DataError, ImageError
from uepnet.model.image import load_image
from uepnet.training.data.region import Mask, blur_outside
from uepnet.training.data.targets import Kernel

Points = NDArray[np.float64]  # [people, 2] as x, y
ADAPTIVE = Kernel()
MAX_PIXELS = 200_000_000  # training data is trusted more than requests to a service


@dataclass(frozen=True)
class Sample:
    """One annotated image. Its annotation is read on first use; its pixels on every use, to keep memory flat.

    Samples are sent to the processes that load data, so they can be pickled.
    """

    name: str  # unique within its data set
    image: Path
    read_points: Callable[[], Points] = field(repr=False)
    kernel: Kernel = ADAPTIVE
    region: Callable[[], Mask] | None = field(default=None, repr=False)  # the pixels where people are counted
    scene: str = ""
    annotations: tuple[Path, ...] = field(default=(), repr=False)  # the files that belong to this image alone
    copies: tuple[Path, ...] = field(default=(), repr=False)  # the same picture, degraded
    notes: tuple[str, ...] = field(default=(), repr=False)  # what its reader assumed, for a person to confirm

    @cached_property
    def points(self) -> Points:
        return self.read_points()

    @cached_property
    def size(self) -> tuple[int, int]:
        """(width, height), upright, from the header."""
        width, height, _ = upright_size(self.image)
        return width, height

    def load_image(self, copy: int | None = None) -> NDArray[np.uint8]:
        """uint8 [height, width, 3], upright RGB; blurred where people are not counted. `copy` is a degraded one."""
        path = self.image if copy is None else self.copies[copy]
        try:
            image = load_image(path, max_pixels=MAX_PIXELS)
        except ImageError as error:
            text = str(error)
            raise ImageError(text if str(path) in text else f"{path}: {text}") from None
        return image if self.region is None else blur_outside(image, self.region())


# What Pillow raises on broken headers and metadata.
_BROKEN = (OSError, SyntaxError, ValueError, TypeError, LookupError, struct.error, Image.DecompressionBombError)


def upright_size(path: Path) -> tuple[int, int, bool]:
    """(width, height, whether the file stores it turned by a quarter), from the header."""
    try:
        with Image.open(path) as image:
            width, height = image.size
            turned = _turned(image)
            # Pillow gives a TIFF's size upright, that of all other formats as stored.
            swapped = image.format == "TIFF"
    except FileNotFoundError:
        raise DataError(f"The image {path} is missing.") from None
    except _BROKEN:
        raise DataError(f"{path} cannot be read as an image.") from None
    return (height, width, turned) if turned and not swapped else (width, height, turned)


def _turned(image: Image.Image) -> bool:
    try:
        orientation = image.getexif().get(0x0112)
    except _BROKEN:
        return False  # as when its pixels are loaded: broken metadata is no reason to refuse an image
    return isinstance(orientation, int) and 5 <= orientation <= 8
