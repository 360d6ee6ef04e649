"""Small requests that would cost much, for tests of the limits."""

import io
import re
import struct

from PIL import Image


def many_scans(width: int, height: int, scans: int) -> bytes:
    """A progressive JPEG of one grey, whose last scan is repeated: each goes over all pixels and changes nothing."""
    file = io.BytesIO()
    Image.new("L", (width, height), 90).save(file, "JPEG", progressive=True)
    whole = file.getvalue()
    starts = [found.start() for found in re.finditer(rb"\xff\xda", whole)]
    last = whole[starts[-1] : -2]
    return whole[:-2] + last * (scans - len(starts)) + b"\xff\xd9"


def arithmetic_scans(width: int, height: int, scans: int) -> bytes:
    """A progressive JPEG of three colours, whose empty scans are arithmetically coded: the slowest known kilobyte."""
    colours = b"\x01\x00\x02\x00\x03\x00"
    size = struct.pack(">BHHB", 8, height, width, 3)
    frame = _segment(0xCA, size + b"".join(bytes([colour, 0x11, 0]) for colour in (1, 2, 3)))
    first = _segment(0xDA, b"\x03" + colours + bytes([0, 0, 0x01])) + bytes(8)
    finer = _segment(0xDA, b"\x03" + colours + bytes([0, 0, 0x10])) + bytes(4)
    quantisation = _segment(0xDB, b"\x00" + b"\x01" * 64)
    return b"\xff\xd8" + quantisation + frame + first + finer * (scans - 1) + b"\xff\xd9"


def _segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content
