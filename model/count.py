"""How an image becomes a count.

`count_image` takes the step that runs the network as a function: the service passes its batcher, evaluation
and `counter.Counter` pass the runtime. So the reported error is measured on the path that serves.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Artifact
from uepnet.model.decode import Maps, count_map
from uepnet.model.detail import spectra
from uepnet.model.parts import Part, ScaleUse, assembled, doubt_of, familiarity_of, saturated_share
from uepnet.model.passes import Answer, Pass, Passes, Size, run_passes
from uepnet.model.regions import Box
from uepnet.model.scale import resized_part, scaled_size
from uepnet.model.seams import seamless
from uepnet.model.stitch import stitch
from uepnet.model.tiling import Tile, Window, cells_shape, cut, margins, windows, windows_of
from uepnet.model.zones import Range, Zone, ZoneCount, check_zones, zone_counts

__all__ = ["Count", "Range", "RunTiles", "ScaleUse", "Tile", "ZoneCount", "count_image", "look", "range_of"]

# Tiles in, their maps out, in order. Lazy on both sides: the tiles of a huge image are never all in memory.
RunTiles = Callable[[Iterator[Tile]], Iterator[Maps]]

MAX_SATURATED = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Count:
    count: float
    range: Range | None  # None if the model has no calibration
    count_map: NDArray[np.float32]  # [rows, columns], people per cell of the original image
    width: int
    height: int
    zones: tuple[ZoneCount, ...]
    saturated: float  # share of occupied cells in the densest class
    warnings: tuple[str, ...]
    cell: int  # side of a cell in pixels
    scales: tuple[ScaleUse, ...] = ()  # coarse to fine
    scale_map: NDArray[np.uint8] | None = None  # [rows, columns], which of `scales` counted each cell
    # One class map [rows, columns] per head, on the grid of the image at the artifact's scale; none where scales are
    # chosen per image, and none for a regression model.
    classes: tuple[NDArray[np.uint8], ...] = ()
    familiarity: float | None = None  # 0 (strange) to 1 (like the training images); None where the model has none
    unfamiliar: bool = False  # familiarity is below the model's threshold
    doubt: float | None = None  # variance of the cells' counts over their squares; None where the decoding has none


def count_image(image: NDArray[np.uint8], artifact: Artifact, run_tiles: RunTiles, zones: Sequence[Zone] = ()) -> Count:
    """Count the people in an RGB image [height, width, 3] and in each zone of it."""
    height, width = image.shape[:2]
    check_zones(zones, width, height)
    found = _parts(image, artifact, run_tiles)
    counts, scales, scale_map = assembled(found, width, height, artifact.cell)
    total = float(counts.sum(dtype=np.float64))
    saturated = saturated_share(found, artifact.cell)
    doubt = doubt_of(found, artifact.cell)
    familiarity = familiarity_of(found)
    unfamiliar = familiarity is not None and is_unfamiliar(familiarity, artifact)
    return Count(
        count=total,
        range=range_of(total, artifact, doubt),
        count_map=counts,
        width=width,
        height=height,
        zones=tuple(
            replace(zone, range=range_of(zone.count, artifact, doubt))
            for zone in zone_counts(counts, zones, width, height, artifact.cell)
        ),
        saturated=saturated,
        warnings=_warnings(saturated, unfamiliar),
        cell=artifact.cell,
        scales=scales,
        scale_map=scale_map,
        classes=found[0].passes.passes[0].answer.classes if artifact.scales is None else (),
        familiarity=familiarity,
        unfamiliar=unfamiliar,
        doubt=doubt,
    )


def _parts(image: NDArray[np.uint8], artifact: Artifact, run_tiles: RunTiles) -> list[Part]:
    """What the network finds in each of the pictures that the image is made of; most images are one."""
    height, width = image.shape[:2]
    boxes = [(0, 0, width, height)] if artifact.scales is None else seamless(image, artifact.cell)
    found = []
    for x, y, width, height in boxes:
        passes = _passes(image[y : y + height, x : x + width], artifact, run_tiles)
        scales = tuple(one.size[0] / width if artifact.scales else artifact.scale for one in passes.passes)
        found.append(Part((x, y, width, height), passes, scales))
    return found


def _passes(image: NDArray[np.uint8], artifact: Artifact, run_tiles: RunTiles) -> Passes:
    """What the network finds: in one pass at the artifact's scale, or in passes at scales chosen from the picture."""
    height, width = image.shape[:2]
    tiling, chosen = artifact.tiling, artifact.scales
    if chosen is None:
        size = scaled_size(width, height, artifact.scale)
        places = windows(*size, tiling.tile, tiling.halo, artifact.cell, artifact.multiple)
        whole = Pass(size, ((0, 0, *size),), look(image, size, places, artifact, run_tiles))
        return Passes((whole,), np.zeros((1, 1), np.uint8))

    def look_at(size: Size, boxes: Sequence[Box]) -> Answer:
        places = [
            window
            for box in boxes
            for window in windows_of(box, size, tiling.tile, chosen.halo, artifact.cell, artifact.multiple)
        ]
        return look(image, size, places, artifact, run_tiles)

    return run_passes(width, height, chosen, artifact.cell, look_at, partial(spectra, image))


def look(
    image: NDArray[np.uint8], size: Size, places: Sequence[Window], artifact: Artifact, run_tiles: RunTiles
) -> Answer:
    """What the network finds in windows of an image resized to `size` (width, height)."""
    padding = artifact.normalisation.padding
    same = size == (image.shape[1], image.shape[0])

    def tile(window: Window) -> Tile:
        if same:
            return cut(image, window, padding)
        box = window.within(*size)
        width, height = box[2:]
        made = margins(window, width, height, padding)
        resized_part(image, size, box, into=made[:height, :width])
        return made

    def tiles() -> Iterator[Tile]:
        for window in places:
            yield tile(window)
        if artifact.mirror:
            # Each tile is mirrored, not the image: whole cells fill a tile, but not always an image.
            for window in places:
                yield tile(window)[:, ::-1]

    shape = cells_shape(*size, artifact.cell)
    answers = iter(run_tiles(tiles()))
    maps = stitch(places, islice(answers, len(places)) if artifact.mirror else answers, shape)
    counts = count_map(maps, artifact)
    if artifact.mirror:
        mirrored = stitch(places, (answer.mirrored() for answer in answers), shape)
        counts = (counts + count_map(mirrored, artifact)) * np.float32(0.5)
    return Answer(counts, maps.variance, *_occupied(maps, artifact), classes=maps.classes, familiarity=maps.familiarity)


def _occupied(maps: Maps, artifact: Artifact) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Occupied cells, and those of them that lie in a head's densest class; a regression network has no classes."""
    if not maps.classes:
        counts = count_map(maps, artifact)
        return counts > 0, np.zeros(counts.shape, bool)
    occupied = maps.classes[0] >= 1
    densest = np.zeros_like(occupied)
    for classes, head in zip(maps.classes, artifact.heads, strict=True):
        densest |= classes >= head.densest_class(artifact.t_max)
    return occupied, densest & occupied


def is_unfamiliar(familiarity: float, artifact: Artifact) -> bool:
    return artifact.familiarity is not None and familiarity < artifact.familiarity.threshold


def _warnings(saturated: float, unfamiliar: bool) -> tuple[str, ...]:
    warnings = []
    if unfamiliar:
        warnings.append(
            "The image does not look like the images that the model was trained on: the count and its range may be "
            "wrong."
        )
    if saturated > MAX_SATURATED:
        warnings.append(
            f"The scene is denser than the model has seen: {saturated:.0%} of the occupied cells are in the "
            "densest class, and the count is probably too low."
        )
    return tuple(warnings)


def range_of(count: float, artifact: Artifact, doubt: float | None) -> Range | None:
    """The range of a count in an image with this doubt; None without calibration."""
    if artifact.calibration is None:
        return None
    low, high = artifact.calibration.range(count, doubt)
    return Range(low, high, artifact.calibration.level)
