"""What the service finds out about a camera's image beside its count. Thread: a request's."""

import hashlib
import io
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.cameras import CameraSettings
from uepnet.model.count import MAX_SATURATED, Count
from uepnet.model.ground import MIN_AREA_SQUARE_METRES, GroundError, GroundPlane, ground_density
from uepnet.model.render import heat_map
from uepnet.model.zones import Zone, corners_inside
from uepnet.service.schemas import Camera, CountAnswer, RangeAnswer, ZoneAnswer

PICTURE_SIDE = 1280  # pictures are kept no larger
JPEG_QUALITY = 80
# (people per square metre, colour): green, yellow, orange, red, violet at Fruin's borders
LEVEL_COLOURS: tuple[tuple[float, tuple[int, int, int]], ...] = (
    (0.43, (66, 160, 90)),
    (2.0, (240, 200, 60)),
    (3.57, (240, 130, 40)),
    (5.55, (215, 40, 50)),
    (7.1, (140, 20, 140)),
)


@dataclass(frozen=True, slots=True, eq=False)
class KeptPicture:
    """The latest picture of a camera, in memory alone; masks are black in it."""

    jpeg: bytes
    count_map: NDArray[np.float32]
    density: NDArray[np.float32] | None  # people per square metre, [rows, columns]
    width: int
    height: int
    cell: int
    settings: CameraSettings  # those that it was masked by
    time: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    zones: tuple[ZoneAnswer, ...]
    densest: float | None  # people per square metre in the densest 10 m²
    warnings: tuple[str, ...]
    digest: str
    saturated: bool
    picture: KeptPicture | None

    def camera(self, name: str, answer: CountAnswer, moment: float | None) -> Camera:
        own = {"saturated", "unfamiliar", "people_per_square_metre", "digest"}
        shared = answer.model_dump(include=set(Camera.model_fields) - own)
        return Camera(
            camera=name,
            time=time.time() if moment is None else moment,
            **shared,
            people_per_square_metre=self.densest,
            saturated=self.saturated,
            unfamiliar=None if answer.familiarity is None else answer.unfamiliar,
            digest=self.digest,
        )


def measure(settings: CameraSettings, zones: tuple[Zone, ...], count: Count, image: NDArray[np.uint8]) -> Measured:
    """`image` is RGB [height, width, 3] with its masks black."""
    warnings: list[str] = []
    plane = density = None
    if settings.ground is not None:
        try:
            plane = GroundPlane.of(settings.ground, settings.area_units, count.width, count.height)
            density = ground_density(count.count_map, count.width, count.height, count.cell, plane)
        except GroundError as error:
            warnings.append(str(error))
    answers = []
    by_name = {zone.name: zone for zone in zones}
    for found in count.zones:
        area = None if plane is None else plane.area(corners_inside(by_name[found.name], count.width, count.height))
        answers.append(
            ZoneAnswer(
                name=found.name,
                count=found.count,
                range=RangeAnswer.of(found.range),
                square_metres=area,
                people_per_square_metre=found.count / area if area and area >= MIN_AREA_SQUARE_METRES else None,
            )
        )
    known = None if density is None else density[~np.isnan(density)]
    return Measured(
        zones=tuple(answers),
        densest=float(known.max()) if known is not None and known.size else None,
        warnings=tuple(warnings),
        digest=hashlib.blake2b(np.ascontiguousarray(image[::4, ::4]).tobytes(), digest_size=12).hexdigest(),
        saturated=count.saturated > MAX_SATURATED,
        picture=_kept(settings, count, image, density) if settings.keep_picture else None,
    )


def _kept(
    settings: CameraSettings, count: Count, image: NDArray[np.uint8], density: NDArray[np.float32] | None
) -> KeptPicture:
    picture = Image.fromarray(image)
    picture.thumbnail((PICTURE_SIDE, PICTURE_SIDE), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return KeptPicture(_jpeg(picture), count.count_map, density, count.width, count.height, count.cell, settings)


def drawn(kept: KeptPicture) -> bytes:
    """The picture under its heat map as JPEG: by ground density where that is known, else by people per cell."""
    picture = Image.open(io.BytesIO(kept.jpeg)).convert("RGB")
    if kept.density is not None:
        colours, veil = _density_colours(kept.density)
    else:
        colours = np.asarray(heat_map(kept.count_map, kept.count_map.shape[1], kept.count_map.shape[0], 1))
        veil = (150 * np.clip(kept.count_map / 0.05, 0, 1)).astype(np.uint8)
    rows, columns = kept.count_map.shape
    width = round(columns * kept.cell * picture.width / kept.width)
    height = round(rows * kept.cell * picture.height / kept.height)
    smooth = Image.Resampling.BILINEAR
    heat = Image.fromarray(colours).resize((width, height), smooth).crop((0, 0, *picture.size))
    mask = Image.fromarray(veil).resize((width, height), smooth).crop((0, 0, *picture.size))
    picture.paste(heat, mask=mask)
    return _jpeg(picture)


def _density_colours(density: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Colours [rows, columns, 3] by level, and how far they hide the picture: not where people walk freely."""
    borders = [border for border, _ in LEVEL_COLOURS]
    index = np.digitize(np.nan_to_num(density, nan=0.0), borders)
    # Where nothing is coloured the veil fades out: from the lowest colour, since black would leave a dark seam.
    palette = np.array([LEVEL_COLOURS[0][1], *(colour for _, colour in LEVEL_COLOURS)], np.uint8)
    veil = np.where(index > 0, 120, 0).astype(np.uint8)
    return palette[index], veil


def _jpeg(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()
