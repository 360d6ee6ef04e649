"""Bytes -> upright RGB, within a pixel limit; and RGB -> PNG.

A file gives either all its pixels or one clear error: a truncated file is never counted in part. Transparent
pixels are laid on white; CMYK, palettes and grey become RGB; 16 bits per channel are scaled to 8; of an animation
the first frame is used; EXIF orientation is applied.
"""

import io
import os
import stat
import struct
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.errors import ImageError, ImageTooLarge
from uepnet.model.file_names import printable
from uepnet.model.image_cost import MAX_PIXELS, MAX_SIDE, check_passes, check_size, megapixels

MAX_FILE_BYTES = 2**30  # more than the largest image takes in any format; a folder may hold anything
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF")

# Pillow warns about odd metadata, which does not matter here, and about size, which is checked here.
# (`warnings.catch_warnings` would do it for one call, but not while other threads decode.)
warnings.filterwarnings("ignore", module=r"PIL\.")

# Pillow returns the memory of every image to the system, and the system clears it again for the next one. Keeping a
# few blocks (of 16 MiB at most) makes decoding two to three times as fast and resizing a third faster.
KEPT_BLOCKS = 4
Image.core.set_blocks_max(KEPT_BLOCKS)  # type: ignore[attr-defined]  # the same as PILLOW_BLOCKS_MAX in the environment

# What Pillow's decoders raise on broken files, found by damaging files at random.
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
# orientation: how to make it upright; whether that exchanges rows and columns; the order of them afterwards
_UPRIGHT: dict[int, tuple[Image.Transpose | None, bool, int, int]] = {
    1: (None, False, 1, 1),
    2: (Image.Transpose.FLIP_LEFT_RIGHT, False, 1, -1),
    3: (Image.Transpose.ROTATE_180, False, -1, -1),
    4: (Image.Transpose.FLIP_TOP_BOTTOM, False, -1, 1),
    5: (Image.Transpose.TRANSPOSE, True, 1, 1),
    6: (Image.Transpose.ROTATE_270, True, 1, -1),
    7: (Image.Transpose.TRANSVERSE, True, -1, -1),
    8: (Image.Transpose.ROTATE_90, True, -1, 1),
}
STRIP_PIXELS = 2**17  # what is copied of them stays in the cache of a core
Shape = tuple[int, int, int]
Check = Callable[[], None]  # called between the steps of long work; raises when nobody waits for it any more


def go_on() -> None:
    pass


def _empty(shape: Shape) -> NDArray[np.uint8]:
    return np.empty(shape, np.uint8)


def load_image(
    source: bytes | Path | BinaryIO,
    max_pixels: int = MAX_PIXELS,
    max_side: int = MAX_SIDE,
    empty: Callable[[Shape], NDArray[np.uint8]] = _empty,
) -> NDArray[np.uint8]:
    """The image as uint8 [height, width, 3], upright RGB. Pillow itself refuses above 178 million pixels.

    `empty` makes the array for the pixels.
    """
    if isinstance(source, Path):
        source = read_file(source)
    data = source if isinstance(source, bytes) else source.read()
    with _open(io.BytesIO(data), max_pixels) as image:
        check_size(image.width, image.height, max_pixels, max_side)
        try:
            check_passes(image, data)
            image.load()
            return rgb_pixels(image, empty)
        except _BROKEN:
            raise ImageError(f"The {image.format} image is damaged or truncated.") from None


def pixels_of(data: bytes, max_pixels: int = MAX_PIXELS, max_side: int = MAX_SIDE) -> int:
    """How many pixels an image file has, by its header alone."""
    with _open(io.BytesIO(data), max_pixels) as image:
        check_size(image.width, image.height, max_pixels, max_side)
        return image.width * image.height


def read_file(path: Path, name: str | None = None) -> bytes:
    """The bytes of an image file, called `name` in errors. A device or a pipe is refused: it might never end."""
    name = name or printable(str(path))
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            found = os.fstat(file.fileno())
            inherited = str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))  # such as <(command)
            if not stat.S_ISREG(found.st_mode) and not (inherited and stat.S_ISFIFO(found.st_mode)):
                raise ImageError(f"{name} is a device or a pipe, not an image file (use - for standard input).")
            os.set_blocking(file.fileno(), True)
            size = found.st_size if stat.S_ISREG(found.st_mode) else MAX_FILE_BYTES
            data = file.read(min(size, MAX_FILE_BYTES) + 1)  # Python allocates as much as it may read
    except (OSError, ValueError) as error:
        raise ImageError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise ImageTooLarge(f"{name} is larger than 1 GiB: it is not an image that can be counted.")
    return data


def _open_at_once(path: str, flags: int) -> int:
    """Opening a named pipe would wait for somebody who writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


ImageSource = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image | NDArray[Any]


def image_reader(source: ImageSource, bgr: bool = False) -> tuple[Callable[[], NDArray[np.uint8]], Path | None]:
    """What reads a source that people have, as often as asked, and its path if it has one. Arrays are RGB, or BGR."""
    if isinstance(source, np.ndarray):
        array = check_array(source)
        rgb = np.ascontiguousarray(array[:, :, ::-1]) if bgr else array
        return lambda: rgb, None
    if isinstance(source, Image.Image):
        return partial(from_pil, source), None
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return partial(load_image, path), path
    return partial(load_image, read_open(source)), None


def read_open(source: object) -> bytes:
    """The content of an open file, or bytes as they are."""
    if hasattr(source, "read"):
        try:
            source = source.read()
        except (OSError, ValueError) as error:  # ValueError: it is closed, or not open for reading
            raise ImageError(f"The file cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not isinstance(source, bytes | bytearray | memoryview):
        raise ImageError(
            "An image is a path, bytes, a file opened in binary mode, a PIL image or an array "
            f"uint8 [height, width, 3], not {type(source).__name__}."
        )
    return bytes(source)


def from_pil(image: Image.Image, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """A PIL image as uint8 [height, width, 3], upright RGB."""
    check_size(image.width, image.height, max_pixels)
    try:
        image.load()
        return rgb_pixels(image)
    except _BROKEN:
        raise ImageError("The PIL image is damaged or truncated.") from None


def check_array(image: NDArray[Any]) -> NDArray[np.uint8]:
    """The array if it is an RGB image, uint8 [height, width, 3]."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise ImageError(f"An image array must be uint8 [height, width, 3], not {image.dtype} {list(image.shape)}.")
    return image


class _CheckedFile(io.BytesIO):
    """Pillow writes a picture in blocks: a check before each ends the writing of a large one."""

    def __init__(self, check: Check) -> None:
        super().__init__()
        self._check = check

    def write(self, block: Any) -> int:
        self._check()
        return super().write(block)


def encode_png(image: NDArray[np.uint8], check: Check = go_on) -> bytes:
    """PNG bytes of an RGB array, with fast compression: photographs gain little from more."""
    file = _CheckedFile(check)
    Image.fromarray(image).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _open(file: BinaryIO, max_pixels: int) -> Image.Image:
    """Read the header alone."""
    try:
        return Image.open(file, formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageTooLarge(f"The image is much larger than the limit of {megapixels(max_pixels)}.") from None
    except _BROKEN:
        raise ImageError(f"The file is not a whole image of a known format ({', '.join(FORMATS)}).") from None


def rgb_pixels(
    image: Image.Image, empty: Callable[[Shape], NDArray[np.uint8]] = _empty, check: Check = go_on
) -> NDArray[np.uint8]:
    """Upright RGB of a loaded image. In strips: at once, each step would take as much memory as the image."""
    _refuse_black(image)
    method, is_turned, down, right = _UPRIGHT[_orientation(image)]
    width, height = image.size
    pixels = empty((width, height, 3) if is_turned else (height, width, 3))
    stored = _exchanged(pixels[::down, ::right], is_turned)  # the same memory, in the order of the stored image
    rows = max(1, STRIP_PIXELS // width)
    for top in range(0, height, rows):
        check()
        strip = _rgb(image if rows >= height else image.crop((0, top, width, min(top + rows, height))))
        place = _exchanged(stored[top : top + rows], is_turned)[::down, ::right]
        place[:] = np.asarray(strip if method is None else strip.transpose(method))
    return pixels


def _exchanged(pixels: NDArray[np.uint8], is_turned: bool) -> NDArray[np.uint8]:
    return pixels.swapaxes(0, 1) if is_turned else pixels


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8.

    Call it after the pixels are loaded: a PNG may have EXIF data after them, and loading rotates a TIFF.
    """
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG)
    except _BROKEN:
        return 1  # broken metadata is no reason to refuse good pixels
    return orientation if isinstance(orientation, int) and orientation in _UPRIGHT else 1


def _is_deep(image: Image.Image) -> bool:
    return image.mode == "I" or image.mode.startswith("I;16")


def _refuse_black(image: Image.Image) -> None:
    """A whole image with small values would be black as 16 bits and count nobody; a dark strip of one is fine."""
    if _is_deep(image) and 0 < cast(tuple[int, int], image.getextrema())[1] < 256:
        raise ImageError(
            "The image has more than 8 bits per channel, but no value above 255: save it with 8 bits per channel."
        )


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode == "F":
        raise ImageError("The image has floating-point samples: save it with 8 or 16 bits per channel.")
    if _is_deep(image):
        return Image.fromarray(_scaled_to_8_bits(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        canvas = Image.new("RGB", image.size, "white")
        canvas.paste(colours, mask=colours.getchannel("A"))
        return canvas
    return image.convert("RGB")


def _scaled_to_8_bits(deep: NDArray[Any]) -> NDArray[np.uint8]:
    """16 bits per sample [height, width] -> 8, in strips: a large image as floats would take 8 bytes per pixel."""
    grey = np.empty(deep.shape, np.uint8)
    for top in range(0, len(deep), 256):
        # 65535 / 257 = 255: full white stays full white.
        grey[top : top + 256] = np.clip(np.rint(deep[top : top + 256] / 257), 0, 255)
    return grey
