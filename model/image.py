"""Bytes -> upright RGB, within a pixel limit.

Every file gives either all its pixels or one clear error: a truncated file is never counted by half. What a
file's mode means is fixed here: alpha lies on white; CMYK, palettes and grey become RGB; 16 bits a channel
are scaled to 8; an animation is its first frame; EXIF orientation is applied.
"""

import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.errors import ImageError, ImageTooLarge

MAX_PIXELS = 50_000_000
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF")

# Pillow warns about odd metadata and, above its own limit, about size. Both are answered here, by an error or
# not at all. (`warnings.catch_warnings` would do it for one call, but not while other threads decode.)
warnings.filterwarnings("ignore", module=r"PIL\.")

# What Pillow's decoders raise on broken files, as seen by damaging files at random.
_BROKEN = (
    OSError,
    ValueError,
    SyntaxError,
    struct.error,
    zlib.error,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    AssertionError,
    Warning,
)

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def load_image(source: bytes | Path | BinaryIO, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """The image as uint8 [height, width, 3], upright RGB. Pillow itself refuses above 178 million pixels."""
    if isinstance(source, Path):
        try:
            data = source.read_bytes()
        except OSError as error:
            raise ImageError(f"{source} cannot be read: {error.strerror}.") from None
        return load_image(data, max_pixels)
    with _open(io.BytesIO(source) if isinstance(source, bytes) else source, max_pixels) as image:
        _check_size(image.width, image.height, max_pixels)
        try:
            image.load()
            return np.array(_rgb(_upright(image)))
        except _BROKEN:
            raise ImageError(f"The {image.format} image is damaged or truncated.") from None


def _open(file: BinaryIO, max_pixels: int) -> Image.Image:
    """Read the header alone."""
    try:
        return Image.open(file, formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageTooLarge(f"The image has far more than the {max_pixels} pixels that are allowed.") from None
    except _BROKEN:
        raise ImageError(f"The file is not a whole image of a known format ({', '.join(FORMATS)}).") from None


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise ImageError("The image is empty.")
    if width * height > max_pixels:
        raise ImageTooLarge(f"The image has {width} x {height} pixels; at most {max_pixels} pixels in all are allowed.")


def _upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation.

    To be called once pixels are loaded: a PNG may have EXIF data behind them, a TIFF is turned by loading.
    """
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG)
    except _BROKEN:
        return image  # broken metadata is no reason to refuse good pixels
    method = _UPRIGHT.get(orientation) if isinstance(orientation, int) else None
    return image if method is None else image.transpose(method)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode == "F":
        raise ImageError("The image has floating-point samples: save it with 8 or 16 bits a channel.")
    if image.mode == "I" or image.mode.startswith("I;16"):
        # 65535 / 257 = 255: full white stays full white.
        grey = np.clip(np.rint(np.asarray(image) / 257), 0, 255).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        canvas = Image.new("RGB", image.size, "white")
        canvas.paste(colours, mask=colours.getchannel("A"))
        return canvas
    return image.convert("RGB")
