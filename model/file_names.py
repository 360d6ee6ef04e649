"""Names of files: which are images, in which order they come, and how they are shown."""

import re

IMAGE_SUFFIXES = frozenset((".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))

NaturalKey = tuple[list[tuple[int, int, str]], str]


def natural(name: str) -> NaturalKey:
    """A sort key under which frame2 comes before frame10, and upper and lower case do not matter."""
    parts = [part for part in re.split(r"([0-9]+)", name) if part]
    return [(0, int(part), "") if part[0] in "0123456789" else (1, 0, part.lower()) for part in parts], name


def printable(text: str) -> str:
    """Text fit for a terminal and for UTF-8: control characters and bytes that are not UTF-8 become escapes.

    A file's name may hold codes that recolour or clear a terminal.
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
