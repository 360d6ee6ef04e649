"""What decoding an image would cost, read from its header: refused before it is paid.

The pixels of an image bound the cost of decoding it, with two exceptions that a small file can exploit. A progressive
JPEG may go over all its pixels in any number of scans; a TIFF may consist of any number of tiles, and each may be a
JPEG of its own. Other formats pass over the pixels a fixed number of times (an interlaced PNG seven times), or hold
what no header tells (the hidden frames of an AVIF): for those the service decodes in a process that can be killed.
"""

import re

from PIL import Image

from uepnet.model.errors import ImageError, ImageTooLarge

MAX_PIXELS = 50_000_000
MAX_SIDE = 32_768  # a panorama of 32768 x 1525 pixels is within both limits
MAX_SCANS = 64  # encoders make about ten
MAX_TIFF_PIECES = 65_536  # tiles or strips
LARGEST_PIECE = 8  # times the pixels of the image: what a tile may reach past its edges

_TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT, _TIFF_TILES, _TIFF_STRIPS = 322, 323, 324, 273
# After the start of a scan, the next marker that is neither a restart nor an escaped 0xFF of the data.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_WITHOUT_LENGTH = frozenset({0x01, 0xD8, *range(0xD0, 0xD8)})


def check_size(width: int, height: int, max_pixels: int = MAX_PIXELS, max_side: int = MAX_SIDE) -> None:
    if width < 1 or height < 1:
        raise ImageError("The image is empty.")
    if width * height > max_pixels:
        raise ImageTooLarge(f"The image has {width} x {height} pixels; the limit is {megapixels(max_pixels)}.")
    if max(width, height) > max_side:
        raise ImageTooLarge(f"The image has {width} x {height} pixels; each side may have at most {max_side}.")


def check_passes(image: Image.Image, data: bytes) -> None:
    """Refuse an opened image whose pixels would be gone over too many times. `data` is the file."""
    if image.format in ("JPEG", "MPO") and scans(data) > MAX_SCANS:
        raise ImageTooLarge(f"The JPEG image has more than {MAX_SCANS} scans.")
    if image.format == "TIFF":
        _check_tiff(image, data)


def megapixels(pixels: int) -> str:
    return f"{pixels / 1e6:g} megapixels" if pixels >= 100_000 else f"{pixels} pixels"


def scans(data: bytes) -> int:
    """How many scans a JPEG has, at most MAX_SCANS + 1."""
    found, at = 0, 2
    while at + 4 <= len(data) and found <= MAX_SCANS:
        if data[at] != 0xFF or data[at + 1] == 0xFF:
            at += 1  # fill bytes, or rubbish that decoders skip
            continue
        marker = data[at + 1]
        if marker == _END_OF_IMAGE:
            break
        at += 2
        if marker in _WITHOUT_LENGTH or marker == 0:
            continue
        at += int.from_bytes(data[at : at + 2])
        if marker == _START_OF_SCAN:
            found += 1
            following = _NEXT_MARKER.search(data, at)
            at = following.start() if following else len(data)
    return found


def _check_tiff(image: Image.Image, data: bytes) -> None:
    tags = getattr(image, "tag_v2", {})
    pieces = max(len(_sequence(tags.get(_TIFF_TILES, ()))), len(_sequence(tags.get(_TIFF_STRIPS, ()))))
    if pieces > MAX_TIFF_PIECES:
        raise ImageTooLarge(f"The TIFF image has more than {MAX_TIFF_PIECES} tiles or strips.")
    width, height = tags.get(_TIFF_TILE_WIDTH, 0), tags.get(_TIFF_TILE_HEIGHT, 0)
    whole = isinstance(width, int) and isinstance(height, int)
    if whole and width * height > LARGEST_PIECE * max(image.width * image.height, 65_536):
        raise ImageTooLarge("The tiles of the TIFF image are far larger than the image.")
    if data.count(b"\xff\xda") * max(1, pieces) > MAX_SCANS * MAX_TIFF_PIECES:
        raise ImageTooLarge("The tiles of the TIFF image have too many JPEG scans.")


def _sequence(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)
