"""The region of an image where people are counted: a mask of pixels, and blurring outside it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from uepnet.training.data.targets import inside

Mask = NDArray[np.bool_]  # [height, width], true where people are counted
BLUR = 11  # side of the mean filter, in pixels


def polygon_mask(corners: Sequence[tuple[float, float]], width: int, height: int) -> Mask:
    """The pixels of a polygon whose corners are in continuous coordinates, those on its edge included."""
    canvas = Image.new("1", (width, height))
    # Pillow counts from the centre of the first pixel, which lies at (0.5, 0.5).
    ImageDraw.Draw(canvas).polygon([(x - 0.5, y - 0.5) for x, y in corners], fill=1, outline=1)
    return np.array(canvas)


def in_mask(points: NDArray[np.float64], mask: Mask) -> Mask:
    """Which points [n, 2] lie on a pixel of the mask; a point outside the frame does not."""
    height, width = mask.shape
    kept = inside(points, width, height)
    columns, rows = points[kept].astype(np.int64).T
    kept[kept] = mask[rows, columns]
    return kept


def blur_outside(image: NDArray[np.uint8], mask: Mask) -> NDArray[np.uint8]:
    """The image [height, width, 3] with a mean filter applied outside the mask."""
    blurred = np.asarray(Image.fromarray(image).filter(ImageFilter.BoxBlur(BLUR // 2)))
    return np.where(mask[:, :, None], image, blurred)


def cell_shares(mask: Mask, cell: int) -> NDArray[np.float32]:
    """The share of each cell's pixels that lie in the mask, [rows, columns]; cells cut by the edge are rounded up."""
    height, width = mask.shape
    padded = np.pad(mask.astype(np.float32), ((0, -height % cell), (0, -width % cell)))
    cells = padded.reshape(padded.shape[0] // cell, cell, padded.shape[1] // cell, cell)
    covered = np.pad(np.ones_like(mask, np.float32), ((0, -height % cell), (0, -width % cell))).reshape(cells.shape)
    shares: NDArray[np.float32] = cells.sum((1, 3)) / covered.sum((1, 3))
    return shares
