"""Named polygons over a count map -> people per zone.

Zones come as JSON:

    {"zones": [{"name": "gate", "units": "fractions", "polygon": [[0.1, 0.2], [0.5, 0.2], [0.3, 0.9]]}]}

`units` is "pixels" (the default) or "fractions" of the frame's width and height; x runs right, y runs down. A
zone may reach past the frame and is cut off there; zones may overlap. A polygon must not cross or touch itself.
A person is counted where the head is. A cell on a zone's edge counts by the share of its area that the zone covers.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from uepnet.model.decode import cell_extents
from uepnet.model.errors import ZoneError
from uepnet.model.validation import first_complaint

MAX_ZONES = 64
MAX_POINTS = 256
MIN_PIXELS = 2.0  # a zone in pixels within this corner holds no head: its points are fractions
FRACTIONS = (-1.0, 2.0)  # a zone may reach past the frame, but 60 is not a fraction
MAX_OUTLINE = 16_000_000  # pixels, of all zones together: their counting takes time and memory for each cell on the way

Coordinate = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Points = NDArray[np.float64]  # [points, 2] as x, y


class Zone(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]
    polygon: tuple[tuple[Coordinate, Coordinate], ...]
    units: Literal["pixels", "fractions"] = "pixels"

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            field, complaint = first_complaint(error)
            raise ZoneError(f"The zone is wrong at {field or 'the start'}: {complaint}.") from None

    # A zone that is read from a file is checked as a part of it, so that the place in the file is told.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def check(self) -> Self:
        # ZoneError is not a ValueError, so pydantic passes it on unchanged.
        if len(self.polygon) > MAX_POINTS:
            raise ZoneError(f'Zone "{self.name}" has {len(self.polygon)} points; at most {MAX_POINTS} are allowed.')
        points = _distinct(np.array(self.polygon, dtype=np.float64).reshape(-1, 2))
        self._check_units(points)
        if len(points) < 3:
            raise ZoneError(f'Zone "{self.name}" needs at least 3 different points.')
        if not _side(points[0], points[1], points).any():
            raise ZoneError(f'Zone "{self.name}" is empty: its points lie on one line.')
        if _crosses_itself(points):
            raise ZoneError(f'Zone "{self.name}" crosses or touches itself: list its corners in order.')
        return self

    def _check_units(self, points: Points) -> None:
        """Points in the wrong units would be counted without a warning, as nobody or as everybody."""
        low, high = FRACTIONS
        outside = points[(points < low) | (points > high)]
        if self.units == "fractions" and len(outside):
            raise ZoneError(
                f'Zone "{self.name}" has the fraction {outside[0]:g}; fractions of the frame run from 0 to 1 '
                "(0.6 is 60 %)."
            )
        if self.units == "pixels" and len(points) and (np.abs(points) <= MIN_PIXELS).all():
            raise ZoneError(
                f'Zone "{self.name}" is smaller than {MIN_PIXELS:g} x {MIN_PIXELS:g} pixels: if its points are '
                'fractions of the frame, add "units": "fractions".'
            )

    def in_pixels(self, width: int, height: int) -> Points:
        """The corners [points, 2] in pixels of a frame, not yet cut at its edges."""
        points = _distinct(np.array(self.polygon, dtype=np.float64))
        return points * (width, height) if self.units == "fractions" else points


@dataclass(frozen=True, slots=True)
class Range:
    """The true count lies within [low, high] in a share `level` of images."""

    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class ZoneCount:
    name: str
    count: float
    range: Range | None = None  # None where the model has no calibration


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    zones: tuple[Zone, ...]

    @field_validator("zones", mode="before")
    @classmethod
    def check_number(cls, zones: object) -> object:
        """Before any polygon is checked, which takes milliseconds each."""
        if isinstance(zones, list):
            _check_number(len(zones))
        return zones


def load_zones(source: str | Path) -> tuple[Zone, ...]:
    """Zones from JSON text, or from a file where a Path is given."""
    if not isinstance(source, str | Path):
        raise ZoneError(f"load_zones takes the Path of a file, or JSON text, not {type(source).__name__}.")
    if isinstance(source, str) and source.rstrip().lower().endswith(".json"):
        raise ZoneError(f'"{source}" is the name of a file, not JSON text: pass it as a Path.')
    try:
        text = _text(source) if isinstance(source, Path) else source
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ZoneError(f"The zones cannot be read from {source}: {reason}.") from None
    try:
        zones = _File.model_validate_json(text).zones
    except ValidationError as error:
        field, complaint = first_complaint(error)
        raise ZoneError(f"The zones are wrong at {field or 'the start'}: {complaint}.") from None
    _check_names(zones)
    return zones


def zone_list(zones: object) -> tuple[Zone, ...]:
    """The zones that a caller passes, of any iterable; a sentence for anything else."""
    found = tuple(zones) if isinstance(zones, Iterable) and not isinstance(zones, str | bytes | Zone) else None
    wrong = zones if found is None else next((zone for zone in found if not isinstance(zone, Zone)), None)
    if isinstance(zones, Zone):
        raise ZoneError(f'Zones are a list: put the zone "{zones.name}" into one.')
    if found is None or wrong is not None:
        raise ZoneError(
            f"Zones are a list of Zone, not {type(wrong).__name__}: make each with Zone(...), or read a file with "
            "load_zones(Path(...))."
        )
    return found


def _text(path: Path) -> str:
    if path.exists() and not path.is_file() and not str(path).startswith("/dev/fd/"):  # such as <(command)
        raise ZoneError(f"The zones cannot be read from {path}: it is not a file.")
    return path.read_text(encoding="utf-8")


def check_zones(zones: Sequence[Zone], width: int, height: int) -> None:
    """Refuse zones that do not fit a frame, before anything is counted."""
    _check_names(zones)
    length = 0.0
    for zone in zones:
        corners = corners_inside(zone, width, height)
        length += float(np.abs(np.diff(corners, axis=0, append=corners[:1])).sum())
    if length > MAX_OUTLINE:
        raise ZoneError(
            f"The outlines of the zones are {length:,.0f} pixels long; at most {MAX_OUTLINE:,} are allowed."
        )


def zone_counts(
    count_map: NDArray[np.float32], zones: Sequence[Zone], width: int, height: int, cell: int
) -> tuple[ZoneCount, ...]:
    """People in each zone of a frame, in the zones' order."""
    _check_names(zones)
    return tuple(ZoneCount(zone.name, float((count_map * covered(zone, width, height, cell)).sum())) for zone in zones)


def covered(zone: Zone, width: int, height: int, cell: int) -> Points:
    """The share of each cell's area that a zone covers, [rows, columns] in 0 ... 1.

    A cell cut by the image's right or bottom edge is as large as its part inside the image.
    """
    rows, columns = cell_extents(height, cell), cell_extents(width, cell)
    areas = np.abs(_cell_areas(corners_inside(zone, width, height) / cell, len(rows), len(columns)))
    shares: Points = np.minimum(areas / (np.outer(rows, columns) / cell**2), 1.0)
    return shares


def blacked_out(image: NDArray[np.uint8], masks: Sequence[Zone]) -> NDArray[np.uint8]:
    """The image [height, width, 3] with all pixels black that the masks touch; the image itself stays as it is."""
    if not masks:
        return image
    height, width = image.shape[:2]
    picture = Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    for mask in masks:
        # The outline is two pixels wide: a polygon's own edge pixels are left to the drawing library.
        corners = [(float(x), float(y)) for x, y in mask.in_pixels(width, height)]
        draw.polygon(corners, fill=(0, 0, 0), outline=(0, 0, 0), width=2)
    return np.asarray(picture)


def _check_number(zones: int) -> None:
    if zones > MAX_ZONES:
        raise ZoneError(f"There are {zones} zones; at most {MAX_ZONES} are allowed.")


def _check_names(zones: Sequence[Zone]) -> None:
    _check_number(len(zones))
    for name, times in Counter(zone.name for zone in zones).items():
        if times > 1:
            raise ZoneError(f'There are {times} zones with the name "{name}"; names must be unique.')


def corners_inside(zone: Zone, width: int, height: int) -> Points:
    """The corners [points, 2] in pixels of the part of a zone that lies inside the frame."""
    corners = _clip(zone.in_pixels(width, height), width, height)
    if abs(_area(corners)) < 1e-9:
        raise ZoneError(f'Zone "{zone.name}" lies outside the frame of {width} x {height} pixels.')
    return corners


def _cell_areas(corners: Points, rows: int, columns: int) -> Points:
    """The signed area of a polygon, corners in cell units, inside each cell: [rows, columns].

    As font rasterisers do it: every edge is split where it passes from one cell to the next. A piece that
    falls by dy adds dy to the area of each cell to its right, and to its own cell the part of dy to its
    right. So each piece is noted in two cells, and a running sum along the row gives the area.
    """
    start, way = corners, np.roll(corners, -1, axis=0) - corners  # edges as [edges, 2]
    number = np.arange(len(corners))
    crossings = [_crossings(start[:, axis], way[:, axis]) for axis in (0, 1)]
    edge = np.concatenate([number, number, *(edges for edges, _ in crossings)])
    share = np.concatenate([np.zeros(len(number)), np.ones(len(number)), *(shares for _, shares in crossings)])
    order = np.lexsort((share, edge))
    edge, share = edge[order], share[order]
    x, y = (start[edge] + share[:, None] * way[edge]).T
    piece = edge[1:] == edge[:-1]  # two neighbours on one edge; the rest are jumps from edge to edge
    dy = np.diff(y)[piece]
    middle_x, middle_y = ((x[1:] + x[:-1]) / 2)[piece], ((y[1:] + y[:-1]) / 2)[piece]
    row = np.clip(np.floor(middle_y).astype(np.int64), 0, rows - 1)
    column = np.clip(np.floor(middle_x).astype(np.int64), 0, columns)
    left = middle_x - column
    noted = np.zeros((rows, columns + 2))
    np.add.at(noted, (row, column), dy * (1 - left))
    np.add.at(noted, (row, column + 1), dy * left)
    return noted.cumsum(axis=1)[:, :columns]


def _crossings(start: Points, way: Points) -> tuple[NDArray[np.int64], Points]:
    """Where edges pass whole numbers on one axis: each edge's number, and the share of its way."""
    low, high = np.minimum(start, start + way), np.maximum(start, start + way)
    first = np.floor(low) + 1
    times = np.maximum(np.ceil(high) - first, 0).astype(np.int64)
    edge = np.repeat(np.arange(len(start)), times)
    mark = first[edge] + np.arange(len(edge)) - np.repeat(times.cumsum() - times, times)
    return edge, np.clip((mark - start[edge]) / way[edge], 0, 1)


def _clip(corners: Points, width: int, height: int) -> Points:
    """Clip a polygon at the frame's four edges, one after the other (Sutherland-Hodgman)."""
    for axis, limit, sign in ((0, 0, 1), (0, width, -1), (1, 0, 1), (1, height, -1)):
        depth = sign * (corners[:, axis] - limit)  # inside where it is >= 0
        kept: list[Points] = []
        for index in range(len(corners)):
            here, before = depth[index], depth[index - 1]
            if (here >= 0) != (before >= 0):
                crossing = corners[index - 1] + (corners[index] - corners[index - 1]) * before / (before - here)
                crossing[axis] = limit
                kept.append(crossing)
            if here >= 0:
                kept.append(corners[index])
        corners = np.array(kept).reshape(-1, 2)
    return corners


def _distinct(points: Points) -> Points:
    """Without points that repeat the one before them (a closed ring's last point repeats the first)."""
    kept: Points = points[(points != np.roll(points, 1, axis=0)).any(axis=1)]
    return kept


def _area(points: Points) -> float:
    """Signed area: positive where the corners run clockwise on the screen."""
    x, y = (points - points[:1]).T  # near the origin, so that the products do not cancel
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2)


def _side(a: Points, b: Points, c: Points) -> Points:
    """On which side of the line a-b the point c lies: the sign, 0 on the line. Broadcasts over all but x, y."""
    ab, ac = b - a, c - a
    return np.sign(ab[..., 0] * ac[..., 1] - ab[..., 1] * ac[..., 0])


def _between(a: Points, b: Points, c: Points) -> NDArray[np.bool_]:
    """Whether c, known to be on the line a-b, lies between them."""
    inside = (np.minimum(a, b) <= c) & (c <= np.maximum(a, b))
    return inside[..., 0] & inside[..., 1]


def _crosses_itself(points: Points) -> bool:
    """Whether any two edges meet, other than neighbours in their common corner."""
    # Every edge a-b (down) against every edge c-d (across): [edges, edges].
    start, end = points, np.roll(points, -1, axis=0)
    a, b, c, d = start[:, None], end[:, None], start[None], end[None]
    c_side, d_side = _side(a, b, c), _side(a, b, d)
    cross = (c_side * d_side < 0) & (_side(c, d, a) * _side(c, d, b) < 0)
    touch = ((c_side == 0) & _between(a, b, c)) | ((d_side == 0) & _between(a, b, d))
    index = np.arange(len(points))
    gap = (index[None] - index[:, None]) % len(points)
    apart = (gap > 1) & (gap < len(points) - 1)
    # Neighbours share b = c, and meet again only where the second folds back onto the first.
    folded = (gap == 1) & (d_side == 0) & (((a - b) * (d - c)).sum(axis=-1) > 0)
    return bool((((cross | touch) & apart) | folded).any())
