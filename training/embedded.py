"""Pictures inside an HTML page, so that the page is one file that needs nothing from outside."""

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.render import heat_map, scale_top

QUALITY = 82


def embedded(picture: Image.Image, width: int) -> str:
    """An <img> of at most `width` pixels."""
    small = picture.convert("RGB")
    small.thumbnail((width, width))
    packed = io.BytesIO()
    small.save(packed, "JPEG", quality=QUALITY)
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(packed.getvalue()).decode()}">'


def heat(count_map: NDArray[np.float32], width: int, height: int, cell: int) -> Image.Image:
    """The people of a count map as a heat map of the picture's size."""
    return Image.fromarray(heat_map(count_map, width, height, cell, scale_top(count_map)))
