"""Small requests that would cost much, for tests of the limits."""

import io
import re

from PIL import Image


def many_scans(width: int, height: int, scans: int) -> bytes:
    """A progressive JPEG of one grey, whose last scan is repeated: each goes over all pixels and changes nothing."""
    file = io.BytesIO()
    Image.new("L", (width, height), 90).save(file, "JPEG", progressive=True)
    whole = file.getvalue()
    starts = [found.start() for found in re.finditer(rb"\xff\xda", whole)]
    last = whole[starts[-1] : -2]
    return whole[:-2] + last * (scans - len(starts)) + b"\xff\xd9"
