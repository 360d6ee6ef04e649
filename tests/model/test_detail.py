import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.scenes import crowd

from uepnet.model.detail import ends, spectra
from uepnet.training.data import dataset


def detail(image: np.ndarray, places: list[tuple[float, float]]) -> float:
    return float(ends(spectra(image, places).sum(axis=0, keepdims=True))[0])


def centres(image: np.ndarray) -> list[tuple[float, float]]:
    height, width = image.shape[:2]
    return [(x * width / 8, y * height / 6) for y in range(1, 6) for x in range(1, 8)]


def enlarged(image: np.ndarray, times: float, quality: int | None, filter: Image.Resampling) -> np.ndarray:
    picture = Image.fromarray(image)
    picture = picture.resize((round(picture.width * times), round(picture.height * times)), filter)
    if quality is not None:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        picture = Image.open(file).convert("RGB")
    return np.asarray(picture)


def test_noise_is_sharp_and_half_of_it_is_gone_at_twice_the_size() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    assert detail(noise, centres(noise)) > 0.9
    twice = enlarged(noise, 2, None, Image.Resampling.LANCZOS)
    assert detail(twice, centres(twice)) == pytest.approx(0.5, abs=0.12)


def test_a_flat_or_tiny_image_is_taken_as_it_is() -> None:
    assert detail(np.full((200, 200, 3), 90, np.uint8), [(100, 100)]) == 1
    assert detail(np.zeros((20, 5, 3), np.uint8), [(2, 10)]) == 1


def test_only_what_lies_around_the_centres_counts() -> None:
    image = np.asarray(Image.fromarray(np.asarray(crowd(3)[0])).resize((1600, 1200)))
    sharp = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    image = image.copy()
    image[-300:, -300:] = sharp
    assert detail(image, [(1450, 1050)]) > 0.9
    assert detail(image, [(200, 200), (400, 300)]) < 0.6


def test_each_place_has_a_detail_of_its_own() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    noise[:, 200:] = enlarged(noise[:100, :67], 3, None, Image.Resampling.LANCZOS)[:300, :200]
    found = ends(spectra(noise, [(100, 150), (300, 150)]))
    assert found[0] > 0.9 and found[1] < 0.5


@pytest.mark.data
@pytest.mark.parametrize("filter", [Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS])
@pytest.mark.parametrize(("times", "quality"), [(2, 75), (3, 92), (4, 85), (4, None)])
def test_an_enlarged_photograph_keeps_the_detail_of_the_original(
    times: int, quality: int | None, filter: Image.Resampling, real_data: Callable[[str], Path]
) -> None:
    samples = dataset.load("shanghaitech-b", real_data("ShanghaiTech"), "val")[:4]
    for sample in samples:
        image = sample.load_image()
        own = detail(image, centres(image))
        larger = enlarged(image, times, quality, filter)
        assert times * detail(larger, centres(larger)) == pytest.approx(own, rel=0.3)
