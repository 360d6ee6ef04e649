"""What is known of a camera: its source, zones, ground, masks and limits. `camera_file.py` reads them from YAML.

`CameraSettings` is what may be asked for and changed over HTTP; `CameraEntry` adds what only the camera file holds.
"""

import unicodedata
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from uepnet.model.errors import InputError, UepnetError
from uepnet.model.ground import MIN_AREA_SQUARE_METRES, Ground, GroundPlane, Units
from uepnet.model.smoothing import Hysteresis
from uepnet.model.zones import FRACTIONS, MAX_ZONES, MIN_PIXELS, Coordinate, Zone

CAMERA_RULE = "1 to 64 letters, digits, spaces, dots, dashes and underscores, the first and the last a letter or digit"
MAX_LIMITS = 64
MAX_MASKS = 64

Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Polygon = tuple[tuple[Coordinate, Coordinate], ...]


class CameraError(InputError):
    """What is said of a camera is wrong. `where` is the path to it inside the camera: ("limits", 0, "zone")."""

    def __init__(self, text: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(text)
        self.where = where


def camera_name(text: str) -> str:
    """The name in Unicode's normal form C: the same letters must be the same name."""
    name = unicodedata.normalize("NFC", text)
    if not 1 <= len(name) <= 64 or not (_letter(name[0]) and _letter(name[-1])):
        raise ValueError(f"a camera's name is {CAMERA_RULE}")
    if not all(_letter(sign) or sign in " ._-" for sign in name):
        raise ValueError(f"a camera's name is {CAMERA_RULE}")
    return name


def _letter(sign: str) -> bool:
    """Letters, the marks that some scripts put on them, and digits."""
    return unicodedata.category(sign)[0] in "LM" or unicodedata.category(sign) == "Nd"


CameraName = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(camera_name)]


class Limit(BaseModel):
    """A number that a count should not reach, in the whole frame or in a zone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    zone: str | None = Field(default=None, description="name of a zone; without it the whole frame")
    people: Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)] | None = None
    per_square_metre: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = Field(
        default=None, description="mean over the zone; without a zone the densest 10 m² in the frame"
    )
    for_seconds: Seconds = Field(default=0.0, description="how long it must be reached to raise an alert")
    clear_below: Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)] | None = Field(
        default=None, description="the alert ends below this value (default: 90 % of the limit)"
    )
    cooldown_seconds: Seconds = Field(
        default=300.0, description="time after an alert before the next one may be raised"
    )

    @property
    def value(self) -> float:
        return self.people if self.people is not None else (self.per_square_metre or 0.0)

    @property
    def quantity(self) -> Literal["people", "per_square_metre"]:
        return "people" if self.people is not None else "per_square_metre"

    @property
    def rule(self) -> Hysteresis:
        return Hysteresis(self.value, self.clear_below, self.for_seconds, self.cooldown_seconds)

    @property
    def key(self) -> str:
        """Names the limit among a camera's limits; a changed limit is another one."""
        return f"{self.quantity}:{self.value:g}:{self.zone or ''}:{self.for_seconds:g}"


class CameraSettings(BaseModel):
    """What `PUT /v1/cameras/{name}` takes: everything but where the pictures come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    units: Units | None = Field(default=None, description="of all coordinates that have no units of their own")
    zones: tuple[Zone, ...] = Field(default=(), max_length=MAX_ZONES)
    ground: Ground | None = None
    mask: tuple[Polygon, ...] = Field(default=(), max_length=MAX_MASKS, description="polygons that are blacked out")
    keep_picture: bool = Field(default=False, description="keep the latest picture in memory for the page")
    smooth_seconds: Seconds = Field(default=5.0, description="limits look at the median over this time")
    limits: tuple[Limit, ...] = Field(default=(), max_length=MAX_LIMITS)
    silent_seconds: PositiveSeconds | None = Field(
        default=60.0, description="alert after this time without a count; null: none"
    )
    frozen_seconds: PositiveSeconds | None = Field(default=60.0, description="alert after identical frames for so long")
    unfamiliar_seconds: PositiveSeconds | None = Field(
        default=300.0, description="alert after this time of scenes unlike those the model was trained on"
    )
    saturated_seconds: PositiveSeconds | None = Field(
        default=60.0, description="alert after this time of crowds denser than the model can tell"
    )

    @model_validator(mode="before")
    @classmethod
    def give_units(cls, data: Any) -> Any:
        """Zones without units of their own take the camera's."""
        if isinstance(data, dict) and data.get("units") and isinstance(data.get("zones"), (list, tuple)):
            zones = [{"units": data["units"], **zone} if isinstance(zone, dict) else zone for zone in data["zones"]]
            return {**data, "zones": zones}
        return data

    @property
    def area_units(self) -> Units:
        """The units of the ground's points and the masks."""
        return self.units or (self.zones[0].units if self.zones else "pixels")

    @property
    def stale_seconds(self) -> float:
        """After this time without a count nothing is known of the camera."""
        return self.silent_seconds or 60.0

    def masks(self) -> tuple[Zone, ...]:
        return tuple(
            Zone(name=f"mask {number}", polygon=polygon, units=self.area_units)
            for number, polygon in enumerate(self.mask, 1)
        )


class CameraEntry(CameraSettings):
    """A camera of the camera file."""

    source: str | None = Field(default=None, min_length=1, max_length=4096, description="read by `uepnet watch` alone")
    fps: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = Field(default=1.0, description="frames a second")

    @field_validator("source", mode="before")
    @classmethod
    def number(cls, source: object) -> object:
        """A bare number is a camera of this machine."""
        return str(source) if isinstance(source, int) and not isinstance(source, bool) else source

    @property
    def settings(self) -> CameraSettings:
        return CameraSettings.model_validate(self.model_dump(exclude={"source", "fps"}))


def check_camera(settings: CameraSettings) -> None:
    """Refuse what does not fit together: raises the first CameraError."""
    for error in _complaints(settings):
        raise error


def _complaints(settings: CameraSettings) -> Iterator[CameraError]:
    names = [zone.name for zone in settings.zones]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield CameraError(f'Two zones have the name "{name}"; each needs its own.', ("zones", index, "name"))
    yield from _unit_complaints(settings)
    if settings.ground is not None:
        yield from _ground_complaints(settings.ground, settings.area_units)
    for index in range(len(settings.mask)):
        try:
            Zone(name=f"mask {index + 1}", polygon=settings.mask[index], units=settings.area_units)
        except UepnetError as error:
            yield CameraError(str(error).replace(f'Zone "mask {index + 1}"', f"Mask {index + 1}"), ("mask", index))
    for index, limit in enumerate(settings.limits):
        yield from _limit_complaints(settings, limit, ("limits", index))


def _unit_complaints(settings: CameraSettings) -> Iterator[CameraError]:
    kinds = {zone.units for zone in settings.zones}
    if settings.units is None and len(kinds) != 1 and (settings.ground or settings.mask):
        where = "ground" if settings.ground else "mask"
        yield CameraError(
            f"The units of the {where} are not known: give the camera units: fractions or units: pixels.", (where,)
        )


def _ground_complaints(ground: Ground, units: Units) -> Iterator[CameraError]:
    """Points in the wrong units would give areas that are wrong without a sign of it."""
    numbers = [number for point in ground.points for number in point]
    low, high = FRACTIONS
    wrong = next((number for number in numbers if not low <= number <= high), None)
    if units == "fractions" and wrong is not None:
        yield CameraError(
            f"The ground's points have the fraction {wrong:g}; fractions of the frame run from 0 to 1 (0.6 is 60 %).",
            ("ground", "points"),
        )
    if units == "pixels" and all(abs(number) <= MIN_PIXELS for number in numbers):
        yield CameraError(
            f"The ground's points lie within {MIN_PIXELS:g} x {MIN_PIXELS:g} pixels: if they are fractions of the"
            " frame, give the camera units: fractions.",
            ("ground", "points"),
        )


def _limit_complaints(settings: CameraSettings, limit: Limit, where: tuple[str | int, ...]) -> Iterator[CameraError]:
    if (limit.people is None) == (limit.per_square_metre is None):
        yield CameraError("A limit needs either people or per_square_metre.", where)
        return
    zone = next((zone for zone in settings.zones if zone.name == limit.zone), None)
    if limit.zone is not None and zone is None:
        known = ", ".join(zone.name for zone in settings.zones) or "none"
        yield CameraError(
            f"The limit's zone \"{limit.zone}\" does not exist; the camera's zones: {known}.", (*where, "zone")
        )
    try:
        _ = limit.rule
    except InputError as error:
        yield CameraError(str(error), (*where, "clear_below"))
    if any(limit.key == other.key for other in settings.limits[: int(where[-1])]):
        yield CameraError("This limit is there twice.", where)
    if limit.per_square_metre is not None:
        yield from _density_complaints(settings, zone, where)


def _density_complaints(
    settings: CameraSettings, zone: Zone | None, where: tuple[str | int, ...]
) -> Iterator[CameraError]:
    if settings.ground is None:
        yield CameraError("A limit of people per square metre needs the camera's ground.", (*where, "per_square_metre"))
    elif zone is not None and zone.units == settings.area_units:
        # The frame's size is not known here, so heads are not corrected for: this refuses what is clearly too small.
        plane = GroundPlane.flat(settings.ground)
        area = plane.area(np.array(zone.polygon, dtype=np.float64))
        if area is None:
            yield CameraError(f'Zone "{zone.name}" reaches above the horizon of the ground.', where)
        elif area < MIN_AREA_SQUARE_METRES:
            yield CameraError(
                f'Zone "{zone.name}" covers about {area:.1f} m²; people per square metre need at least'
                f" {MIN_AREA_SQUARE_METRES:g} m².",
                where,
            )
