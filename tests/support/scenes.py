"""Generated crowds: bright heads on dark ground, in the release layout of ShanghaiTech, and weights to start from."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.io import savemat

from uepnet.model.detail import BANDS
from uepnet.training.data import synthetic


def scene(rng: np.random.Generator, people: int, width: int = 160, height: int = 128) -> tuple[Image.Image, np.ndarray]:
    """A picture and its points, 1-based as in a .mat file."""
    image = Image.fromarray(rng.integers(20, 60, (height, width, 3), dtype=np.uint8))
    draw = ImageDraw.Draw(image)
    points = rng.uniform((4, 4), (width - 4, height - 4), (people, 2))
    for x, y in points:
        draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=(230, 200, 170), outline=(60, 30, 20))
    return image, points + 0.5


def release(root: Path, images: int = 20, part: str = "A", seed: int = 0) -> Path:
    """ShanghaiTech's folders with generated scenes in them."""
    rng = np.random.default_rng(seed)
    for split, number in (("train", images), ("test", max(2, images // 4))):
        data = root / f"part_{part}" / f"{split}_data"
        (data / "images").mkdir(parents=True)
        (data / "ground-truth").mkdir()
        for index in range(1, number + 1):
            image, points = scene(rng, int(rng.integers(2, 40)))
            image.save(data / "images" / f"IMG_{index}.jpg", quality=95)
            info = np.empty((1, 1), dtype=object)
            info[0, 0] = {"location": points, "number": np.array([[len(points)]])}
            savemat(str(data / "ground-truth" / f"GT_IMG_{index}.mat"), {"image_info": info})
    return root


def starting_weights(path: Path, width: int = 16) -> Path:
    """Random weights of the light network: tests must not need ImageNet's."""
    import torch
    from safetensors.torch import save_file

    from uepnet.model.artifact import Layout
    from uepnet.model.network import build

    torch.manual_seed(0)
    layout = Layout(encoder="efficientnet-lite0", width=width, classes=(3, 4))
    save_file(build(layout).encoder.state_dict(), path)
    return path


def crowd(seed: int, width: int = 640, height: int = 480, rows: int = 22) -> tuple[Image.Image, int]:
    """A drawn crowd and its number; the bundled model was trained on others (seeds 0 to 31)."""
    picture, points = synthetic.crowd(np.random.default_rng(seed), width, height, rows)
    return Image.fromarray(picture), len(points)


def amid_nobody(width: int, height: int) -> np.ndarray:
    """The crowd of seed 2021 in a grey picture that is empty around it."""
    image = np.full((height, width, 3), 120, np.uint8)
    image[100:580, 150:790] = np.asarray(crowd(2021)[0])
    return image


def spectra_of(details: Sequence[float]) -> NDArray[np.float64]:
    """The spectra of places that keep these details, each a 32nd or a multiple of it."""
    return np.eye(BANDS)[[round(detail * BANDS) - 1 for detail in details]]
