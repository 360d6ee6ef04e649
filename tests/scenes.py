"""Generated crowds: bright heads on dark ground, in the release layout of ShanghaiTech, and weights to start from."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from scipy.io import savemat


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
    """People drawn from the back to the front, smaller in the distance: near enough to a photograph to be counted."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (width, height), (150, 160, 170))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, height * 0.2, width, height), fill=(110, 105, 100))
    people = 0
    for row in range(rows):
        depth = (row / max(1, rows - 1)) ** 1.3
        y, head = height * (0.22 + 0.7 * depth), 5 + 13 * depth
        x = float(rng.uniform(0, 2 * head))
        while x < width:
            _person(draw, x, y + float(rng.normal(0, head * 0.3)), head, rng)
            people += 1
            x += head * float(rng.uniform(1.5, 2.6))
    noisy = np.asarray(image.filter(ImageFilter.GaussianBlur(0.7)), np.float32) + rng.normal(0, 6, (height, width, 1))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)), people


def _person(draw: ImageDraw.ImageDraw, x: float, y: float, head: float, rng: np.random.Generator) -> None:
    """Shoulders in muted clothes, a face or the back of a head; `head` is the head's width."""
    tone = rng.uniform(20, 160)
    cloth = tuple(int(value) for value in np.clip(tone + rng.normal(0, 18, 3), 5, 235))
    skin = tuple(int(value * rng.uniform(0.6, 1.05)) for value in (215, 170, 140))
    hair = tuple(int(value) for value in rng.integers(10, 60) + rng.integers(0, 15, 3))
    draw.ellipse((x - head, y + head * 0.6, x + head, y + head * 4), fill=cloth)
    draw.ellipse((x - head * 0.45, y - head * 0.5, x + head * 0.45, y + head * 0.75), fill=skin)
    start, end = (150, 390) if rng.random() < 0.5 else (0, 360)
    draw.chord((x - head * 0.52, y - head * 0.65, x + head * 0.52, y + head * 0.6), start, end, fill=hair)


def amid_nobody(width: int, height: int) -> np.ndarray:
    """The crowd of seed 2021 in a grey picture that is empty around it."""
    image = np.full((height, width, 3), 120, np.uint8)
    image[100:580, 150:790] = np.asarray(crowd(2021)[0])
    return image
