"""The cost of image size and halo, measured through `count_image`."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uepnet.model.artifact import Artifact
    from uepnet.model.count import Count, Tile
    from uepnet.model.decode import Maps
    from uepnet.model.runtime import Runtime

SIZES = ((256, 256), (512, 512), (1024, 768), (2048, 1536), (4096, 3072), (6000, 4000))
TIMES = (1, 2, 3, 4)
HALOS = (0, 32, 64, 96, 128)
SMALL_TILE = 256  # divides photographs that fit into one default tile
PHOTOGRAPHS = 8


def sizes(runtime: "Runtime", picture: "Callable[[int, int], Tile]", budget_seconds: float) -> list[dict[str, Any]]:
    """Count images of increasing size until the next one would take longer than the budget."""
    rows: list[dict[str, Any]] = []
    for width, height in SIZES:
        megapixels = width * height / 1e6
        if rows and rows[-1]["seconds_per_megapixel"] * megapixels > budget_seconds:
            break
        image = picture(width, height)
        _, seen, seconds = _seen(image, runtime)
        rows.append(
            {
                "question": "size",
                "image": f"{width}x{height}",
                "tiles": len(seen),
                "work": sum(seen) / (width * height),
                "seconds": seconds,
                "seconds_per_megapixel": seconds / megapixels,
                "peak_rss_mib": _peak_rss_mib(),
            }
        )
    return rows


def enlarged(runtime: "Runtime", picture: "Callable[[int, int], Tile]") -> list[dict[str, Any]]:
    """The same picture with more and more pixels: what megapixels alone cost, and what they change."""
    import numpy as np
    from PIL import Image

    whole = Image.fromarray(picture(1024, 768))
    rows: list[dict[str, Any]] = []
    for times in TIMES:
        image = np.asarray(whole.resize((1024 * times, 768 * times), Image.Resampling.BICUBIC))
        count, seen, seconds = _seen(image, runtime)
        rows.append(
            {
                "question": "enlarged",
                "megapixels": image.shape[0] * image.shape[1] / 1e6,
                "megapixels_seen": sum(seen) / 1e6,
                "seconds": seconds,
                "people": count.count,
            }
        )
    return rows


def halos(
    runtime: "Runtime",
    picture: "Callable[[int, int], Tile]",
    photographs: Sequence[Path] | None,
    budget_seconds: float,
) -> list[dict[str, Any]]:
    """Tiled against untiled counts: single photographs with small tiles, a mosaic of them with the default tile."""
    from uepnet.model.image import load_image

    tile = runtime.artifact.tiling.tile
    side = 2 * tile if _seconds(picture(512, 512), runtime) * (2 * tile / 512) ** 2 * 8 < 4 * budget_seconds else 0
    rows = []
    if photographs:
        images = [load_image(path) for path in photographs[:PHOTOGRAPHS]]
        rows += _curve(runtime, images, SMALL_TILE, f"{len(images)} photographs")
    else:
        rows += _curve(runtime, [picture(512, 384)], SMALL_TILE, "a generated image")
    if side:
        rows += _curve(runtime, [picture(side, side * 3 // 4)], tile, "a mosaic")
    return rows


def _curve(runtime: "Runtime", images: "Sequence[Tile]", tile: int, name: str) -> list[dict[str, Any]]:
    import numpy as np

    whole = [_count(image, runtime, _tiled(runtime.artifact, 8192, 0)) for image in images]
    rows = []
    for halo in (halo for halo in HALOS if tile - 2 * halo >= 64):
        artifact = _tiled(runtime.artifact, tile, halo)
        tiled = [_count(image, runtime, artifact) for image in images]
        pairs = list(zip(tiled, whole, strict=True))
        errors = [abs(a.count - b.count) / max(b.count, 1.0) for a, b in pairs]
        cells = sum(float(np.abs(a.count_map - b.count_map).sum()) for a, b in pairs)
        rows.append(
            {
                "question": "halo",
                "pictures": name,
                "tile": tile,
                "halo": halo,
                "work": float(np.mean([_work(image, artifact) for image in images])),
                "seam_error": float(np.mean(errors)),
                "worst": max(errors),
                "cell_error": cells / max(sum(count.count for count in whole), 1.0),
            }
        )
    return rows


def _count(image: "Tile", runtime: "Runtime", artifact: "Artifact") -> "Count":
    from uepnet.model.count import count_image

    return count_image(image, artifact, runtime.run_tiles)


def _seen(image: "Tile", runtime: "Runtime") -> "tuple[Count, list[int], float]":
    """The count of an image, the pixels of each tile that the network saw for it, and the seconds it took."""
    from uepnet.model.count import count_image

    seen: list[int] = []

    def run_tiles(tiles: "Iterator[Tile]") -> "Iterator[Maps]":
        def noted() -> "Iterator[Tile]":
            for tile in tiles:
                seen.append(tile.shape[0] * tile.shape[1])
                yield tile

        return runtime.run_tiles(noted())

    started = time.perf_counter()
    count = count_image(image, runtime.artifact, run_tiles)
    return count, seen, time.perf_counter() - started


def _seconds(image: "Tile", runtime: "Runtime") -> float:
    started = time.perf_counter()
    _count(image, runtime, runtime.artifact)
    return time.perf_counter() - started


def _tiled(artifact: "Artifact", tile: int, halo: int) -> "Artifact":
    from uepnet.model.artifact import Tiling

    return artifact.model_copy(
        update={"tiling": Tiling(tile=tile, halo=halo), "scale": 1.0, "scales": None, "mirror": False}
    )


def _windows(image: "Tile", artifact: "Artifact") -> "Sequence[Any]":
    from uepnet.model.tiling import windows

    height, width = image.shape[:2]
    tiling = artifact.tiling
    return windows(width, height, tiling.tile, tiling.halo, artifact.cell, artifact.multiple)


def _work(image: "Tile", artifact: "Artifact") -> float:
    """Computed pixels divided by pixels of the image."""
    pixels = sum(window.width * window.height for window in _windows(image, artifact))
    return float(pixels / (image.shape[0] * image.shape[1]))


def _peak_rss_mib() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
