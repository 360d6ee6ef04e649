"""The story: how an image becomes a count.

`count_image` takes the step that runs the network as a function: the service passes its batcher, evaluation
and `Counter` pass the runtime. So the error that is reported is measured on the path that is served.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Artifact
from uepnet.model.decode import Maps, count_map, regrid
from uepnet.model.errors import ImageError
from uepnet.model.image import load_image
from uepnet.model.resize import resized_part, scaled_size
from uepnet.model.stitch import stitch
from uepnet.model.tiling import Tile, Window, cells_shape, cut, padded, windows
from uepnet.model.zones import Zone, ZoneCount, check_zones, zone_counts

__all__ = ["Count", "Counter", "Range", "RunTiles", "Tile", "ZoneCount", "count_image", "range_of"]

# Tiles in, their maps out, in order. Lazy on both sides: a huge image never lies in memory as tiles.
RunTiles = Callable[[Iterator[Tile]], Iterator[Maps]]

MAX_SATURATED = 0.05


@dataclass(frozen=True, slots=True)
class Range:
    """The true count lies within [low, high] in a share `level` of images."""

    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True, eq=False)
class Count:
    count: float
    range: Range | None  # None where the model has no calibration
    count_map: NDArray[np.float32]  # [rows, columns], people per cell of the image as it was handed in
    width: int
    height: int
    zones: tuple[ZoneCount, ...]
    saturated: float  # share of occupied cells in the densest class
    warnings: tuple[str, ...]
    cell: int = 8  # side of a cell in pixels


def count_image(image: NDArray[np.uint8], artifact: Artifact, run_tiles: RunTiles, zones: Sequence[Zone] = ()) -> Count:
    """Count the people in an RGB image [height, width, 3] and in each zone of it."""
    height, width = image.shape[:2]
    check_zones(zones, width, height)
    size = scaled_size(width, height, artifact.scale)
    counts, saturated = _count_cells(image, size, artifact, run_tiles)
    if artifact.scale != 1:
        counts = regrid(counts, (width, height), size, artifact.cell)
    total = float(counts.sum(dtype=np.float64))
    return Count(
        count=total,
        range=range_of(total, artifact),
        count_map=counts,
        width=width,
        height=height,
        zones=zone_counts(counts, zones, width, height, artifact.cell),
        saturated=saturated,
        warnings=_warnings(saturated),
        cell=artifact.cell,
    )


class Counter:
    """Count images in this process: `Counter().count("crowd.jpg").count`."""

    def __init__(
        self, model: Path | str | None = None, device: str = "auto", precision: str = "auto", threads: int = 0
    ) -> None:
        # Imported here: `count_image` alone needs no ONNX Runtime.
        from uepnet.model.runtime import Runtime

        directory = None if model is None else Path(model)
        self.runtime = Runtime(directory, device=device, precision=precision, threads=threads)

    @property
    def artifact(self) -> Artifact:
        return self.runtime.artifact

    def count(self, source: str | Path | bytes | NDArray[Any], zones: Sequence[Zone] = ()) -> Count:
        """Count an image file, its bytes, or an RGB array uint8 [height, width, 3]."""
        return count_image(_read(source), self.artifact, self.runtime.run_tiles, zones)


def _read(source: str | Path | bytes | NDArray[Any]) -> NDArray[np.uint8]:
    if isinstance(source, np.ndarray):
        if source.dtype != np.uint8 or source.ndim != 3 or source.shape[2] != 3 or source.size == 0:
            raise ImageError(
                f"An image array must be uint8 [height, width, 3], not {source.dtype} {list(source.shape)}."
            )
        return source
    return load_image(source if isinstance(source, bytes) else Path(source))


def _count_cells(
    image: NDArray[np.uint8], size: tuple[int, int], artifact: Artifact, run_tiles: RunTiles
) -> tuple[NDArray[np.float32], float]:
    """The count map of an image at the network's `size` (width, height) of it, and the share of saturated cells."""
    shape = cells_shape(*size, artifact.cell)
    tiling, padding = artifact.tiling, artifact.normalisation.padding
    places = windows(*size, tiling.tile, tiling.halo, artifact.cell, artifact.multiple)

    def tile(window: Window) -> Tile:
        if artifact.scale == 1:
            return cut(image, window, padding)
        return padded(resized_part(image, size, window.within(*size)), window, padding)

    def tiles() -> Iterator[Tile]:
        for window in places:
            yield tile(window)
        if artifact.mirror:
            # Each tile is mirrored, not the image: whole cells fill a tile, but not always an image.
            for window in places:
                yield tile(window)[:, ::-1]

    answers = iter(run_tiles(tiles()))
    maps = stitch(places, islice(answers, len(places)) if artifact.mirror else answers, shape)
    counts = count_map(maps, artifact)
    if artifact.mirror:
        mirrored = stitch(places, (answer.mirrored() for answer in answers), shape)
        counts = (counts + count_map(mirrored, artifact)) * np.float32(0.5)
    return counts, _saturated(maps, artifact)


def _saturated(maps: Maps, artifact: Artifact) -> float:
    """The share of occupied cells that lie in a head's densest class; a regression network has no classes."""
    if not maps.classes:
        return 0.0
    occupied = maps.classes[0] >= 1
    top = np.zeros_like(occupied)
    for classes, head in zip(maps.classes, artifact.heads, strict=True):
        top |= classes >= head.densest_class(artifact.t_max)
    people = int(occupied.sum())
    return int((top & occupied).sum()) / people if people else 0.0


def _warnings(saturated: float) -> tuple[str, ...]:
    if saturated <= MAX_SATURATED:
        return ()
    return (
        f"The scene is denser than the model has seen: {saturated:.0%} of the occupied cells are in the "
        "densest class, and the count is probably too low.",
    )


def range_of(count: float, artifact: Artifact) -> Range | None:
    """The range that belongs to a count."""
    if artifact.calibration is None:
        return None
    low, high = artifact.calibration.range(count)
    return Range(low, high, artifact.calibration.level)
