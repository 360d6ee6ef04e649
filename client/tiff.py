"""Pixels as they lie in memory behind a header: the picture format that costs no conversion, here or at the reader."""

import struct

import numpy as np
from numpy.typing import NDArray

SHORT, LONG = 3, 4
TAGS = 9
BITS_AT = 8 + 2 + 12 * TAGS + 4  # behind the file's header, the number of tags, the tags, and "no other image"
PIXELS_AT = BITS_AT + 3 * 2


def tiff(image: NDArray[np.uint8]) -> bytes:
    """RGB [height, width, 3] -> an uncompressed TIFF (TIFF 6.0, section 6)."""
    height, width, channels = image.shape
    tags = (  # tag, kind, number of values, the value or where the values stand
        (256, LONG, 1, width),
        (257, LONG, 1, height),
        (258, SHORT, 3, BITS_AT),
        (259, SHORT, 1, 1),  # not compressed
        (262, SHORT, 1, 2),  # RGB
        (273, LONG, 1, PIXELS_AT),
        (277, SHORT, 1, channels),
        (278, LONG, 1, height),  # all rows lie together
        (279, LONG, 1, image.nbytes),
    )
    parts = [struct.pack("<2sHIH", b"II", 42, 8, TAGS)]
    parts += [struct.pack("<HHII", *tag) for tag in tags]
    parts += [struct.pack("<I3H", 0, 8, 8, 8), image.tobytes()]
    return b"".join(parts)
