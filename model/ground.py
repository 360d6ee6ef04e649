"""Pixels -> metres on the ground: zone areas and ground density (people per square metre).

Four image points whose places on flat ground are known give the homography between the picture and the ground.
Counts mark heads, and heads are seen about 1.6 m above the ground, so a head's pixel lies on the plane at that
height. For square pixels and a principal point in the middle of the frame, the homography also gives the focal
length and the camera's position, hence the plane of the heads. All areas are measured on that plane. Where the
perspective is too weak to tell the focal length (a camera that looks straight down), areas are measured on the
ground itself, `corrected` is False and densities are too low by about 2 * 1.6 m / camera height.

Density is never computed over less than 10 m²: below that a single person changes it too much.

The levels are those of J. J. Fruin, "Pedestrian Planning and Design" (1971) and "The causes and prevention of
crowd disasters" (1993): areas of 2.3, 0.5, 0.28, 0.18 and 0.14 m² per person.
"""

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from uepnet.model.decode import cell_extents
from uepnet.model.errors import InputError
from uepnet.model.zones import Coordinate

HEAD_METRES = 1.6
MIN_AREA_SQUARE_METRES = 10.0
# (people per square metre, what is seen from there on)
LEVELS: tuple[tuple[float, str], ...] = (
    (0.0, "free"),
    (0.43, "walking"),  # 2.3 m² per person: below it everyone walks freely and overtakes
    (2.0, "slowed"),  # 0.5 m²: movement is a slow shuffle
    (3.57, "contact"),  # 0.28 m²: people touch without wanting to
    (5.55, "dangerous"),  # 0.18 m²: forces in the crowd may become dangerous
    (7.1, "critical"),  # 0.14 m²: the crowd moves like a fluid; critical also when it stands still
)

Points = NDArray[np.float64]  # [points, 2] as x, y
Matrix = NDArray[np.float64]  # [3, 3]
Units = Literal["pixels", "fractions"]


class GroundError(InputError):
    """The ground points do not describe a piece of flat ground that the camera sees from above."""


class Ground(BaseModel):
    """Four image points, in order around the shape, and where they are on the ground."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: tuple[tuple[Coordinate, Coordinate], ...] = Field(min_length=4, max_length=4)
    metres: tuple[tuple[Coordinate, Coordinate], ...] | None = Field(default=None, min_length=4, max_length=4)
    rectangle: tuple[float, float] | None = Field(default=None, description="width and depth in metres")

    @model_validator(mode="after")
    def check(self) -> Self:
        if (self.metres is None) == (self.rectangle is None):
            raise GroundError("The ground needs either metres (four points) or rectangle (width and depth in metres).")
        if self.rectangle is not None and not all(0 < side <= 10_000 for side in self.rectangle):
            raise GroundError("The sides of the ground's rectangle must be between 0 and 10000 metres.")
        image, places = np.array(self.points), self.places()
        for name, four in (("image points", image), ("metres", places)):
            if _flattest(four) < 2e-3:
                raise GroundError(
                    f"Three of the ground's four {name} lie (almost) on one line: choose the corners of a wide shape."
                )
        turns, places_turns = _turns(image), _turns(places)
        if not (np.array_equal(turns, places_turns) or np.array_equal(turns, -places_turns)):
            raise GroundError(
                "The ground's points and metres do not fit together: list the same four corners in the same order."
            )
        return self

    def places(self) -> Points:
        """[4, 2] in metres."""
        if self.metres is not None:
            return np.array(self.metres, dtype=np.float64)
        width, depth = self.rectangle or (1.0, 1.0)
        return np.array([(0, 0), (width, 0), (width, depth), (0, depth)], dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class GroundPlane:
    """The plane on which areas are measured, for frames of one size."""

    to_metres: Matrix  # homogeneous pixels -> homogeneous metres; w > 0 below the horizon
    corrected: bool  # measured at head height
    camera_metres: float | None  # the camera's height above the ground, where it is known

    @classmethod
    def flat(cls, ground: Ground) -> "GroundPlane":
        """The ground itself, in the points' own units: for a rough check before any frame's size is known."""
        points = np.array(ground.points, dtype=np.float64)
        return cls(_seen(np.linalg.inv(_homography(ground.places(), points)), points), False, None)

    @classmethod
    def of(cls, ground: Ground, units: Units, width: int, height: int) -> "GroundPlane":
        scale = np.array([width, height] if units == "fractions" else [1, 1], dtype=np.float64)
        pixels = np.array(ground.points, dtype=np.float64) * scale
        to_pixels = _homography(ground.places(), pixels)
        raised, camera_metres = _raised(to_pixels, ground.places().mean(axis=0), width, height)
        matrix = np.linalg.inv(to_pixels if raised is None else raised)
        return cls(_seen(matrix, pixels), raised is not None, camera_metres)

    def metres(self, pixels: Points) -> tuple[Points, NDArray[np.bool_]]:
        """Pixels [..., 2] -> metres [..., 2], and which of them lie below the horizon."""
        homogeneous = np.concatenate([pixels, np.ones_like(pixels[..., :1])], axis=-1) @ self.to_metres.T
        below = homogeneous[..., 2] > 1e-9
        safe = np.where(below, homogeneous[..., 2], 1.0)
        return homogeneous[..., :2] / safe[..., None], below

    def area(self, corners: Points) -> float | None:
        """Square metres inside a polygon given by its corners in pixels; None where it reaches the horizon."""
        metres, below = self.metres(corners)
        if not below.all():
            return None
        x, y = (metres - metres[:1]).T
        area = abs(float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2))
        return area if area < 1e7 else None


def level(people_per_square_metre: float) -> str:
    """The name of Fruin's level."""
    return next(name for border, name in reversed(LEVELS) if people_per_square_metre >= border)


def ground_density(
    count_map: NDArray[np.float32], width: int, height: int, cell: int, plane: GroundPlane
) -> NDArray[np.float32]:
    """People per square metre [rows, columns] over at least 10 m² around each cell; NaN where that is not seen.

    Cells are cut into parts, the parts fall into a raster of half a metre, and a box over the raster gathers
    people and visible area alike: people near the frame's edge are divided by what is seen, not by what is not.
    """
    rows, columns = count_map.shape
    parts = 3
    x, y = _part_edges(width, cell, parts), _part_edges(height, cell, parts)
    corners = np.stack(np.meshgrid(x, y), axis=-1)  # [rows * parts + 1, columns * parts + 1, 2]
    metres, below = plane.metres(corners)
    areas = _quad_areas(metres)  # [rows * parts, columns * parts]
    whole = below[:-1, :-1] & below[1:, :-1] & below[:-1, 1:] & below[1:, 1:]
    # A part larger than a square metre is so far away that neither its people nor its area can be told.
    usable = whole & (areas < 1.0) & (areas > 0)
    density = np.full((rows, columns), np.nan, np.float32)
    if not usable.any():
        return density
    middles = (metres[:-1, :-1] + metres[1:, 1:]) / 2
    people = np.repeat(np.repeat(count_map, parts, axis=0), parts, axis=1) / parts**2
    found = _box_density(middles[usable], people[usable], areas[usable])
    spread = np.full(usable.shape, np.nan)
    spread[usable] = found
    blocks = spread.reshape(rows, parts, columns, parts)
    known = ~np.isnan(blocks)
    number = known.sum(axis=(1, 3))
    total = np.where(known, blocks, 0).sum(axis=(1, 3))
    np.divide(total, number, out=density, where=number > 0, casting="unsafe")
    return density


def _box_density(places: Points, people: NDArray[np.float64], areas: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each part [parts] the people per square metre in the smallest box around it with 10 m² in sight."""
    bin_metres = 0.5
    index = np.floor((places - places.min(axis=0)) / bin_metres).astype(np.int64)
    index = np.minimum(index, 1023)  # half a kilometre; what lies beyond gathers at the edge
    shape = tuple(index.max(axis=0) + 1)
    flat = np.ravel_multi_index((index[:, 0], index[:, 1]), shape)
    size = int(np.prod(shape))
    crowd = np.bincount(flat, people, size).reshape(shape)
    seen = np.bincount(flat, areas, size).reshape(shape)
    result = np.full(shape, np.nan)
    for half in (3, 4, 6, 9):  # boxes of 3.5, 4.5, 6.5 and 9.5 m
        in_box = _box_sum(seen, half)
        fits = np.isnan(result) & (in_box >= MIN_AREA_SQUARE_METRES)
        result[fits] = (_box_sum(crowd, half) / np.maximum(in_box, 1e-9))[fits]
    density: NDArray[np.float64] = result.ravel()[flat]
    return density


def _box_sum(raster: NDArray[np.float64], half: int) -> NDArray[np.float64]:
    """The sum over the box of 2 * half + 1 bins around each bin."""
    padded = np.pad(raster, ((half + 1, half), (half + 1, half)))
    sums = padded.cumsum(axis=0).cumsum(axis=1)
    side = 2 * half + 1
    box: NDArray[np.float64] = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    return np.maximum(box, 0)  # rounding


def _part_edges(length: int, cell: int, parts: int) -> NDArray[np.float64]:
    """The edges of all parts along one axis, in pixels; a last cell that is cut has smaller parts."""
    extents = cell_extents(length, cell)
    starts = np.concatenate([[0], extents.cumsum()])[:-1]
    inner = starts[:, None] + extents[:, None] * (np.arange(parts) / parts)[None]
    return np.append(inner.ravel(), length)


def _quad_areas(grid: Points) -> NDArray[np.float64]:
    """Areas of the quadrilaterals of a grid of points [rows + 1, columns + 1, 2]."""
    one, two = grid[1:, 1:] - grid[:-1, :-1], grid[1:, :-1] - grid[:-1, 1:]
    areas: NDArray[np.float64] = np.abs(one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0]) / 2
    return areas


def _homography(source: Points, target: Points) -> Matrix:
    """The matrix that takes four source points to four target points."""
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y, -u])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y, -v])
    matrix = np.array(rows)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    found: Matrix = np.linalg.svd(matrix)[2][-1].reshape(3, 3)
    return found


def _seen(to_metres: NDArray[np.floating[Any]], points: Points) -> Matrix:
    """The same matrix with w > 0 at what is seen: the given points."""
    w = float(to_metres[2] @ np.append(points.mean(axis=0), 1))
    scaled: Matrix = to_metres * (np.sign(w) / np.abs(to_metres).max())
    return scaled


def _raised(to_pixels: Matrix, middle: Points, width: int, height: int) -> tuple[Matrix | None, float | None]:
    """The homography of the plane at head height, and the camera's height; None where it cannot be told.

    `middle` [2] is a place on the ground that the camera sees, in metres.
    """
    centred = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1]]) @ to_pixels
    one, two = centred[:, 0], centred[:, 1]
    # With s = 1 / focal², the plane's axes are at right angles and equally long: two equations a * s + b = 0.
    a = np.array([one[:2] @ two[:2], (one[:2] @ one[:2] - two[:2] @ two[:2]) / 2])
    b = np.array([one[2] * two[2], (one[2] ** 2 - two[2] ** 2) / 2])
    s = -(a @ b) / (a @ a) if a @ a > 0 else 0.0
    longest = max(width, height)
    if not 1 / (10 * longest) ** 2 <= s <= 1 / (0.25 * longest) ** 2:
        return None, None
    camera = np.diag([s**-0.5, s**-0.5, 1.0])
    pose = np.linalg.inv(camera) @ centred
    pose *= 2 / (np.linalg.norm(pose[:, 0]) + np.linalg.norm(pose[:, 1]))
    pose *= np.sign(pose[2] @ np.append(middle, 1)) or 1.0  # what is seen lies before the camera
    normal = np.cross(pose[:, 0], pose[:, 1])
    camera_height = -float(normal @ pose[:, 2])  # along the normal; its sign says on which side the camera is
    if abs(camera_height) < HEAD_METRES + 0.4:
        raise GroundError(
            f"By the ground's points the camera is {abs(camera_height):.1f} m above the ground; density needs a"
            f" camera well above the heads, at least {HEAD_METRES + 0.4:g} m."
        )
    up = normal * np.sign(camera_height)
    pose[:, 2] += HEAD_METRES * up
    shift = np.array([[1, 0, width / 2], [0, 1, height / 2], [0, 0, 1]])
    return shift @ camera @ pose, abs(camera_height)


def _flattest(four: Points) -> float:
    """Twice the smallest triangle among four points, as a share of the square of their extent."""
    extent = max(float(np.ptp(four, axis=0).max()), 1e-12)
    return float(np.abs(_crosses(four)).min()) / extent**2


def _turns(four: Points) -> NDArray[np.float64]:
    return np.sign(_crosses(four))


def _crosses(four: Points) -> NDArray[np.float64]:
    """For each point left out in turn, twice the signed area of the triangle of the other three."""
    signed = []
    for left_out in range(4):
        a, b, c = np.delete(four, left_out, axis=0)
        signed.append((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))
    return np.array(signed)
