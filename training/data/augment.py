"""Scale, crop and mirror, of an image together with its points: counts are recomputed, never interpolated."""

import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from uepnet.model.artifact import MULTIPLE
from uepnet.model.scale import FILTER
from uepnet.training.data.dataset import Points
from uepnet.training.data.degrade import degrade_cheaply
from uepnet.training.data.targets import Kernel, local_counts


@dataclass(frozen=True, slots=True)
class Augment:
    """A crop of `size` pixels square, or (size 0) of a quarter of the image's area with its aspect, at most `most`."""

    size: int = 256
    most: int = 1024
    scale: tuple[float, float] = (0.3, 1.3)
    mirror: bool = True
    blind: int = 0  # cells along a cut through the image that are ignored (NaN)
    degrade: float = 0.0  # the probability that a tile is degraded in the loop
    jitter: float = 0.0  # strength of changes of brightness and contrast, and probability of grey


def crop(
    image: NDArray[np.uint8],
    points: Points,
    kernel: Kernel,
    augment: Augment,
    rng: np.random.Generator,
    cell: int,
    padding: tuple[int, int, int],
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """One training tile [height, width, 3] and its local counts [height/cell, width/cell].

    Only the pixels of the crop are resampled, not the whole scaled image. The part of a crop beyond the edge of the
    scaled image is filled with the padding colour and has no people.

    Crops are drawn up to half a crop beyond the image and then moved inside. Otherwise the outermost pixels, where the
    distant crowd of a street camera is, would hardly ever be trained.
    """
    full_height, full_width = image.shape[:2]
    factor = float(rng.uniform(*augment.scale))
    width, height = full_width * factor, full_height * factor
    crop_width, crop_height = _crop_size(augment, width, height)
    x, y = _start(rng, width, crop_width), _start(rng, height, crop_height)
    mirrored = augment.mirror and rng.random() < 0.5
    tile = _resample(image, factor, (x, y, crop_width, crop_height), padding)
    scaled = points * factor
    sigmas = kernel.sigmas(scaled, width, height)
    counts = local_counts(scaled, sigmas, (width, height), cell, (x, y, crop_width, crop_height))
    _blind(counts, augment.blind, (x, y), (x + crop_width < round(width), y + crop_height < round(height)))
    if mirrored:
        # Crops are whole cells, so mirroring the counts of a crop is mirroring its points.
        tile, counts = tile[:, ::-1], counts[:, ::-1]
    if augment.jitter:
        tile = _jittered(tile, augment.jitter, rng)
    tile = np.ascontiguousarray(tile)
    if augment.degrade and rng.random() < augment.degrade:
        tile = degrade_cheaply(tile, rng)
    return tile, np.ascontiguousarray(counts)


def _start(rng: np.random.Generator, side: float, crop: int) -> int:
    """The start of a crop. At the far end it is padded to a whole multiple, as images are when they are counted."""
    room = max(0, MULTIPLE * math.ceil(round(side) / MULTIPLE) - crop)
    return min(room, max(0, int(rng.integers(-crop // 2, room + crop // 2 + 1)))) if room else 0


def _blind(counts: NDArray[np.float32], most: int, before: tuple[int, int], after: tuple[bool, bool]) -> None:
    """Ignore the cells along a cut through the image: when the model counts, such cells belong to a tile's halo and are
    dropped. The network cannot tell a cut from the edge of the image, so it would learn wrong counts for the edge."""
    for axis, (cut_before, cut_after) in enumerate(zip(reversed(before), reversed(after), strict=True)):
        along = np.moveaxis(counts, axis, 0)
        width = min(most, len(along) // 8)
        if cut_before:
            along[:width] = np.nan
        if cut_after:
            along[len(along) - width :] = np.nan


def _jittered(tile: NDArray[np.uint8], strength: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """The tile as in another light or by another camera: gamma, contrast, brightness and tint by a table per channel;
    sometimes also grey, blurred or strongly compressed."""
    gamma, contrast = np.exp(rng.uniform(-strength, strength, 2))
    level = (np.arange(256) / 255) ** gamma
    bright = 255 * (contrast * (level - 0.5) + 0.5 + rng.uniform(-strength, strength) / 2)
    tint = np.exp(rng.uniform(-strength, strength, 3) / 3)
    tables = np.clip(bright[:, None] * tint, 0, 255).astype(np.uint8)
    tile = np.stack([tables[:, channel][tile[..., channel]] for channel in range(3)], axis=2)
    if rng.random() < strength / 2:
        tile = tile.mean(axis=2, keepdims=True).astype(np.uint8).repeat(3, axis=2)
    if rng.random() < strength / 2:
        tile = np.array(Image.fromarray(tile).filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.2))))
    if rng.random() < strength / 2:
        packed = io.BytesIO()
        Image.fromarray(tile).save(packed, "JPEG", quality=int(rng.integers(15, 60)))
        tile = np.array(Image.open(packed))  # writable
    return tile


def _crop_size(augment: Augment, width: float, height: float) -> tuple[int, int]:
    if augment.size:
        return augment.size, augment.size
    halves = (min(augment.most, side / 2) for side in (width, height))
    crop_width, crop_height = (max(MULTIPLE, MULTIPLE * round(side / MULTIPLE)) for side in halves)
    return crop_width, crop_height


def _resample(
    image: NDArray[np.uint8], factor: float, crop: tuple[int, int, int, int], padding: tuple[int, int, int]
) -> NDArray[np.uint8]:
    x, y, width, height = crop
    full_height, full_width = image.shape[:2]
    # The part of the crop that lies in the scaled image, in whole pixels of the crop.
    inner_width = min(width, int(full_width * factor) - x)
    inner_height = min(height, int(full_height * factor) - y)
    tile = np.empty((height, width, 3), np.uint8)
    tile[:] = padding
    if inner_width > 0 and inner_height > 0:
        box = (x / factor, y / factor, (x + inner_width) / factor, (y + inner_height) / factor)
        filtered = Image.fromarray(image).resize((inner_width, inner_height), FILTER, box=box)
        tile[:inner_height, :inner_width] = np.asarray(filtered)
    return tile
