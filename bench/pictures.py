"""Images of any size to count: a mosaic of photographs, or a generated one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uepnet.model.count import Tile

SLOT = (512, 384)  # (width, height) of a photograph in the mosaic


def pictures(photographs: Sequence[Path] | None) -> "Callable[[int, int], Tile]":
    """(width, height) -> an image of that size, always the same."""
    import numpy as np
    from PIL import Image, ImageOps

    from uepnet.model.image import load_image

    if not photographs:
        return drawn
    fitted = [np.asarray(ImageOps.fit(Image.fromarray(load_image(path)), SLOT)) for path in photographs]

    def mosaic(width: int, height: int) -> "Tile":
        across, down = -(-width // SLOT[0]), -(-height // SLOT[1])
        rows = [
            np.concatenate([fitted[(row * across + column) % len(fitted)] for column in range(across)], axis=1)
            for row in range(down)
        ]
        return np.ascontiguousarray(np.concatenate(rows)[:height, :width])

    return mosaic


def drawn(width: int, height: int) -> "Tile":
    """Coloured blots. They take as long as a crowd, because the network does the same work everywhere."""
    import numpy as np
    from PIL import Image

    coarse = np.random.default_rng(0).integers(0, 256, (-(-height // 16), -(-width // 16), 3), dtype=np.uint8)
    return np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
