"""A count together with the image it belongs to: what `Counter().count(...)` returns."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.count import Count
from uepnet.model.errors import InputError
from uepnet.model.image import encode_png
from uepnet.model.outputs import Output, check_outputs, whole_file
from uepnet.model.render import overlay
from uepnet.model.zones import Zone

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
NOTEBOOK_PIXELS = 1600  # the longer side of the picture that a notebook shows


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CountedImage(Count):
    """A `Count` that can be drawn, saved and shown in a notebook.

    The image itself is not kept: it is read again when it is drawn.
    """

    model: Mapping[str, str]  # name and version
    polygons: tuple[Zone, ...] = ()
    read_image: Callable[[], NDArray[np.uint8]] = field(repr=False)
    path: Path | None = None  # of the image, where it has one

    def overlay(self) -> NDArray[np.uint8]:
        """The image with heat map, zones, count and legend, RGB [height, width, 3]."""
        return overlay(self.read_image(), self, self.polygons)

    def save(self, path: str | Path) -> Path:
        """Write the overlay; the suffix (.png, .jpg, .webp) says in which format. Never over the image itself."""
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"save() takes the name of a file, not {type(path).__name__}.")
        place = Path(path)
        inputs = [] if self.path is None else [self.path]
        check_outputs([Output("the overlay", place, tuple(FORMATS))], inputs, overwrite=True)
        with whole_file(place) as file:
            Image.fromarray(self.overlay()).save(file, FORMATS.get(place.suffix.lower(), "PNG"))
        return place

    def to_dict(self) -> dict[str, Any]:
        """What `uepnet count --json` prints: plain numbers, lists and texts."""
        return count_fields(self, self.model)

    def _repr_png_(self) -> bytes:
        """The overlay, which a notebook shows for the result."""
        picture = Image.fromarray(self.overlay())
        picture.thumbnail((NOTEBOOK_PIXELS, NOTEBOOK_PIXELS))
        return encode_png(np.asarray(picture))


@dataclass(frozen=True, slots=True)
class FrameCount:
    """A counted frame, or a gap, where `count` is None and `gap` says why nothing is known."""

    frame: int
    seconds: float  # since the first frame; of a live source, since 1970
    time: datetime | None  # of a live source: when the frame arrived
    count: float | None
    result: Count | None  # the whole count, with range and zones
    gap: str | None = None


def counted_image(
    count: Count,
    model: Mapping[str, str],
    polygons: Sequence[Zone],
    read_image: Callable[[], NDArray[np.uint8]],
    path: Path | None,
) -> CountedImage:
    values = {each.name: getattr(count, each.name) for each in fields(Count)}
    return CountedImage(**values, model=model, polygons=tuple(polygons), read_image=read_image, path=path)


def count_fields(count: Count, model: Mapping[str, str]) -> dict[str, Any]:
    """A count as it is written in every JSON."""
    bounds = count.range
    return {
        "count": count.count,
        "range": None if bounds is None else {"low": bounds.low, "high": bounds.high, "level": bounds.level},
        "zones": [{"name": zone.name, "count": zone.count} for zone in count.zones],
        "saturated": count.saturated,
        "scales": [{"scale": use.scale, "share": use.share} for use in count.scales],
        "familiarity": count.familiarity,
        "unfamiliar": count.unfamiliar,
        "warnings": list(count.warnings),
        "model": dict(model),
    }


def place_of(source: object) -> Path | None:
    """The file that an open file or a PIL image was read from, where that is known."""
    name = getattr(source, "filename", None) or getattr(source, "name", None)
    return Path(name) if isinstance(name, str | os.PathLike) and name else None


def check_several(sources: object, function: str) -> None:
    """One image, where several are expected, is a common mistake: a name would be read as a list of letters."""
    single = isinstance(sources, str | bytes | bytearray | memoryview | os.PathLike | Image.Image)
    if single or hasattr(sources, "read") or (isinstance(sources, np.ndarray) and sources.ndim == 3):
        raise InputError(f"{function}() takes a list of images, not one: use count() for one.")
    if not isinstance(sources, Iterable):
        raise InputError(f"{function}() takes a list or an iterator of images, not {type(sources).__name__}.")


def check_single(source: object) -> None:
    """A list is a common mistake, with its own answer."""
    if isinstance(source, list | tuple | set | dict):
        raise InputError(f"count() takes one image, not a {type(source).__name__}: use count_many() for several.")
