"""Where a picture is made of several pictures."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.scenes import crowd

from uepnet.model.seams import LEAST_SIDE, MOST_PARTS, seamless
from uepnet.training.data import dataset


def photograph(seed: int, width: int = 400, height: int = 300) -> np.ndarray:
    """Noise with the spectrum of photographs, each with a brightness of its own."""
    rng = np.random.default_rng(seed)
    octaves = [
        np.asarray(
            Image.fromarray(rng.normal(0, 60 / 2**level, (2 + 2**level, 2 + 2**level)).astype(np.float32)).resize(
                (width, height), Image.Resampling.BICUBIC
            )
        )
        for level in range(1, 9)
    ]
    grey = np.clip(40 + 140 * rng.random() + np.sum(octaves, axis=0) + rng.normal(0, 2, (height, width)), 0, 255)
    return np.repeat(grey.astype(np.uint8)[:, :, None], 3, 2)


def wall(rows: int, columns: int, width: int, height: int) -> np.ndarray:
    """Pictures side by side, no two neighbours of about the same brightness."""
    made = [
        [np.clip(photograph(9 * y + x, width, height) // 2 + 120 * ((x + y) % 2), 0, 255) for x in range(columns)]
        for y in range(rows)
    ]
    return np.concatenate([np.concatenate(row, 1) for row in made]).astype(np.uint8)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(130, 300), st.integers(130, 300))
def test_parts_cover_the_image_once_and_start_at_cells(rows: int, columns: int, width: int, height: int) -> None:
    image = wall(rows, columns, width, height)
    found = seamless(image, 8)
    assert len(found) == rows * columns
    covered = np.zeros(image.shape[:2], int)
    for x, y, w, h in found:
        covered[y : y + h, x : x + w] += 1
        assert (
            x % 8 == y % 8 == 0 and abs(x - round(x / width) * width) <= 7 and abs(y - round(y / height) * height) <= 7
        )
    assert (covered == 1).all()
    assert seamless(image, 8) == found


@given(st.integers(1, 700), st.integers(1, 700), st.integers(0, 100))
def test_one_picture_is_one_part(width: int, height: int, seed: int) -> None:
    assert seamless(photograph(seed, width, height), 8) == [(0, 0, width, height)]


def test_a_flat_picture_and_a_drawn_crowd_are_one_part() -> None:
    assert len(seamless(np.full((600, 800, 3), 90, np.uint8), 8)) == 1
    assert len(seamless(np.asarray(crowd(3)[0]), 8)) == 1


def test_a_part_is_never_narrow() -> None:
    image = photograph(1, 800, 600)
    image[:, : LEAST_SIDE - 20] = 0
    assert len(seamless(image, 8)) == 1
    image[:, : LEAST_SIDE + 16] = 0
    assert seamless(image, 8) == [(0, 0, 144, 600), (144, 0, 656, 600)]


def test_there_is_a_limit_to_the_number_of_parts() -> None:
    assert len(seamless(wall(7, 7, 136, 136), 8)) == MOST_PARTS


def test_rows_may_be_divided_at_different_places() -> None:
    top = np.concatenate([photograph(1, 304), 255 - photograph(1, 496)], 1)
    below = np.concatenate([255 - photograph(2, 496), photograph(2, 304)], 1)
    assert sorted(seamless(np.concatenate([top // 2, 127 + below // 2]), 4)) == [
        (0, 0, 304, 300),
        (0, 300, 496, 300),
        (304, 0, 496, 300),
        (496, 300, 304, 300),
    ]


@pytest.mark.data
def test_photographs_are_one_part_and_mosaics_of_them_many(real_data: Callable[[str], Path]) -> None:
    folder = real_data("ShanghaiTech")
    for part in ("a", "b"):
        for sample in dataset.load(f"shanghaitech-{part}", folder, "val"):
            assert len(seamless(sample.load_image(), 8)) == 1
    photographs = [sample.load_image() for sample in dataset.load("shanghaitech-b", folder, "val")[:12]]
    mosaic = np.concatenate([np.concatenate(photographs[start : start + 4], 1) for start in (0, 4, 8)])
    boxes = [(x, y, 1024, 768) for y in (0, 768, 1536) for x in (0, 1024, 2048, 3072)]
    assert sorted(seamless(mosaic, 8)) == sorted(boxes)
    file = io.BytesIO()
    twice = Image.fromarray(mosaic).resize((8192, 4608), Image.Resampling.BICUBIC)
    twice.save(file, "JPEG", quality=85)
    assert len(seamless(np.asarray(Image.open(file)), 8)) == 12
