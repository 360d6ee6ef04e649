"""MATLAB files of version 5 to 7 -> their variables.

SciPy's reader is compiled code that trusts the sizes it reads: a damaged file (bytes flipped, a tail of zeros from a
broken download) can end the process. So the file's elements are walked first; compressed ones carry a checksum.
"""

import struct
import zlib
from pathlib import Path
from typing import Any

from uepnet.model.errors import DataError

MATRIX, COMPRESSED, LAST_KIND = 14, 15, 18
BYTE_ORDERS = {b"IM": "<", b"MI": ">"}


def read_mat(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        data = path.read_bytes()
        _walk(data[128:], BYTE_ORDERS[data[126:128]])
        content: dict[str, Any] = loadmat(str(path))
    except FileNotFoundError:
        raise DataError(f"The annotation {path} is missing.") from None
    except (
        MatReadError,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        NameError,  # SciPy's own, on an unknown class of array
        ArithmeticError,
        NotImplementedError,
        RecursionError,
        struct.error,
        zlib.error,
    ):
        raise DataError(f"The annotation {path} is damaged or no MATLAB file of version 5 to 7.") from None
    return content


def _walk(data: bytes, order: str) -> None:
    """Follow the tags (kind, size) of all elements down to the leaves; ValueError where one does not fit."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start = at + 8
        if kind >> 16:  # a small element: size and kind share the first four bytes, the data lies in the next
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            after = at + 8
        else:
            after = start + size + (0 if kind == COMPRESSED else -size % 8)
        if not 1 <= kind <= LAST_KIND or start + size > min(after, len(data)):
            raise ValueError("not an element")
        if kind == COMPRESSED:
            _walk(zlib.decompress(data[start : start + size]), order)
        elif kind == MATRIX:
            _walk(data[start : start + size], order)
        at = after
