"""A count as JSON, PNG or NPY, by what the client accepts."""

import io
from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from uepnet.model.count import Count
from uepnet.model.decode import cell_extents
from uepnet.model.image import Check, encode_png
from uepnet.model.render import heat_map, overlay
from uepnet.model.zones import Zone
from uepnet.service.errors import Refused

Format = Literal["application/json", "image/png", "application/x-npy"]
FORMATS: tuple[Format, ...] = ("application/json", "image/png", "application/x-npy")
View = Literal["overlay", "heat"]
MapKind = Literal["count", "density", "classes"]
DecodingName = Literal["argmax", "expectation"]


def negotiate(accept: str) -> Format:
    """The best of our formats for an Accept header; the first of equals; JSON where nothing is asked for."""
    if not accept.strip():
        return FORMATS[0]
    ranges = [_media_range(text) for text in accept.split(",")]
    best = max(FORMATS, key=lambda offered: _quality(offered, ranges))
    if _quality(best, ranges) <= 0:
        raise Refused("not-acceptable", f"The answer can be {', '.join(FORMATS)}.")
    return best


def _media_range(text: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = next((part[2:] for part in parameters if part.startswith("q=")), "1")
    try:
        return name, float(quality)
    except ValueError:
        return name, 0.0


def _quality(offered: str, ranges: list[tuple[str, float]]) -> float:
    """The most specific range that fits decides."""
    for pattern in (offered, offered.partition("/")[0] + "/*", "*/*"):
        for name, quality in ranges:
            if name == pattern:
                return quality
    return 0.0


def picture(count: Count, image: NDArray[np.uint8], view: View, zones: tuple[Zone, ...], check: Check) -> bytes:
    """As PNG; `check` is called again and again, and raises when nobody waits for the picture any more."""
    if view == "heat":
        return encode_png(heat_map(count.count_map, count.width, count.height, count.cell, check=check), check)
    return encode_png(overlay(image, count, zones, check=check), check)


def class_maps(count: Count) -> NDArray[np.uint8]:
    """uint8 [heads, rows, columns], on the grid of the image at the scale at which the model counts."""
    if not count.classes:
        raise Refused(
            "wrong-request",
            "There are no class maps for this image: the model is a regression, or chooses the scales from the image. "
            "In the latter case ask for decoding=argmax, which counts at one scale.",
        )
    return np.stack(count.classes)


def largest_picture(count: Count) -> int:
    """No less than the bytes of a picture: its pixels uncompressed, with room for the strip below an overlay."""
    return 3 * (count.width + 1024) * (count.height + 512)


def npy(array: NDArray[np.float32] | NDArray[np.uint8]) -> bytes:
    """A count map, float32 [rows, columns], or class maps, uint8 [heads, rows, columns]."""
    file = io.BytesIO()
    np.save(file, array.astype(array.dtype.newbyteorder("<"), copy=False), allow_pickle=False)
    return file.getvalue()


def density_npy(count: Count) -> tuple[int, Iterator[bytes]]:
    """float32 [height, width]: people per pixel. The length, and pieces: a whole map would take 4 bytes per pixel."""
    header = _npy_header((count.height, count.width))

    def pieces() -> Iterator[bytes]:
        yield header
        columns = cell_extents(count.width, count.cell)
        for people, rows in zip(count.count_map, cell_extents(count.height, count.cell), strict=True):
            row = np.repeat(people / (rows * columns).astype(np.float32), columns).astype("<f4", copy=False)
            yield row.tobytes() * int(rows)

    return len(header) + 4 * count.height * count.width, pieces()


def _npy_header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()
