"""Pictures unlike those of a camera, with what a model says of them before it is fine-tuned: it should go on saying so.

A network that learns from one camera finds more people everywhere, in photographs of animals, too. No photographs come
with the package, so the camera's own are made strange: turned on their side or head, enlarged up to their blurred
details, in other colours, or as many small things side by side.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.count import RunTiles, Tile
from uepnet.training.data.dataset import Sample
from uepnet.training.data.synthetic import herd, sheet

PICTURES = 8  # that are made strange: all of them may be too many to load
SMALLEST = 48  # side of a piece of a picture, pixels
PIECES = 0.6  # share of single pieces; the rest are sheets and herds of them

Labelled = tuple[Tile, NDArray[np.float32]]  # [side, side, 3], and the people in its cells


def rehearsal(samples: Sequence[Sample], number: int, side: int, seed: int, run: RunTiles) -> list[Labelled]:
    """`number` strange tiles, and what the model counts in them; none for a model that tells no expected counts."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(samples), min(PICTURES, len(samples)), replace=False)
    images = [samples[int(index)].load_image() for index in chosen]
    tiles = [_strange(images, rng, side) for _ in range(number)]
    found: Iterator[NDArray[np.float32] | None] = (maps.counts for maps in run(iter(tiles)))
    return [(tile, counts.copy()) for tile, counts in zip(tiles, found, strict=True) if counts is not None]


def _strange(images: Sequence[Tile], rng: np.random.Generator, side: int) -> Tile:
    first, *others = [_piece(images[int(index)], rng, side) for index in rng.integers(len(images), size=4)]
    kind = rng.random()
    if kind < PIECES:
        return first
    return np.array((sheet if kind < (1 + PIECES) / 2 else herd)([first, *others], rng, side))


def _piece(image: Tile, rng: np.random.Generator, side: int) -> Tile:
    """A square of the picture, enlarged to `side`, never upright, half of them in wrong colours."""
    height, width = image.shape[:2]
    most = min(height, width)
    length = int(np.exp(rng.uniform(np.log(min(SMALLEST, most)), np.log(most))))
    left, top = int(rng.integers(width - length + 1)), int(rng.integers(height - length + 1))
    piece = Image.fromarray(image).resize(
        (side, side), Image.Resampling.BICUBIC, (left, top, left + length, top + length)
    )
    turned = np.rot90(np.asarray(piece), int(rng.integers(1, 4)))
    if rng.random() < 0.5:
        turned = turned[..., rng.permutation(3)]
    return np.ascontiguousarray(255 - turned if rng.random() < 0.25 else turned)
