"""A count as JSON, PNG or NPY, by what the client accepts."""

import io
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from uepnet.model.count import Count
from uepnet.model.decode import density_map
from uepnet.model.render import encode_png, heat_map, overlay
from uepnet.model.zones import Zone
from uepnet.service.problems import Refused

Format = Literal["application/json", "image/png", "application/x-npy"]
FORMATS: tuple[Format, ...] = ("application/json", "image/png", "application/x-npy")
View = Literal["overlay", "heat"]
MapKind = Literal["count", "density"]


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


def picture(count: Count, image: NDArray[np.uint8], view: View, zones: tuple[Zone, ...]) -> bytes:
    if view == "heat":
        return encode_png(heat_map(count.count_map, count.width, count.height))
    return encode_png(overlay(image, count, zones))


def npy(count: Count, kind: MapKind) -> bytes:
    """float32 [rows, columns] people per cell, or [height, width] people per pixel."""
    array = count.count_map
    if kind == "density":
        array = density_map(array, count.width, count.height, count.cell)
    file = io.BytesIO()
    np.save(file, array.astype("<f4", copy=False), allow_pickle=False)
    return file.getvalue()
