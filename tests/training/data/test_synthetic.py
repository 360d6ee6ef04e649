"""Scenes without people: of the size asked for, the same for the same seed, and nobody in any of them; drawn crowds."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import label

from uepnet.training.data.augment import Augment
from uepnet.training.data.batches import Tiles
from uepnet.training.data.dataset import load, pictures
from uepnet.training.data.synthetic import KINDS, crowd, crowds, herd, sheet


@pytest.mark.parametrize("kind", KINDS)
def test_a_scene_has_the_size_asked_for_and_depends_on_the_seed_alone(kind: str) -> None:
    first, again, other = (KINDS[kind](np.random.default_rng(seed), 160, 96) for seed in (1, 1, 2))
    assert first.shape == (96, 160, 3) and first.dtype == np.uint8
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize("seed", range(5))
def test_a_sheet_shows_whole_photographs_small_and_often(seed: int) -> None:
    photograph = np.zeros((300, 400, 3), np.uint8)
    photograph[:, 200:] = 255  # black on the left, white on the right
    made = sheet([photograph], np.random.default_rng(seed), 480)
    assert made.shape == (480, 480, 3)
    edges = np.flatnonzero(np.diff(made[240, :, 0].astype(int)) > 100)
    assert len(edges) >= 3  # an edge between black and white every 80 pixels or less
    assert 0.4 < (made > 127).mean() < 0.6


@pytest.mark.parametrize("seed", range(5))
def test_a_herd_shows_things_from_the_photographs_many_times(seed: int) -> None:
    red_on_grey = np.full((200, 300, 3), 120, np.uint8)
    red_on_grey[60:140, 100:200] = (220, 20, 20)
    made = herd([red_on_grey], np.random.default_rng(seed), 384)
    assert made.shape == (384, 384, 3) and made.dtype == np.uint8
    assert np.array_equal(made, herd([red_on_grey], np.random.default_rng(seed), 384))
    ground = np.asarray(Image.fromarray(red_on_grey).resize((384, 384), reducing_gap=2), int)
    _, pieces = label(np.abs(made - ground).sum(axis=2) > 60)
    assert pieces >= 3  # the ground holds one; things that touch count as one piece


def test_tiles_without_people_hold_nobody_whatever_they_show(tmp_path: Path) -> None:
    for number in range(3):
        Image.new("RGB", (90, 70), (40 * number, 90, 10)).save(tmp_path / f"{number}.png")
    augment = Augment(64, scale=(0.8, 2), blind=2, jitter=0.3)
    tiles = Tiles([], augment, 8, (127, 127, 127), seed=3, empties=pictures(tmp_path))
    kinds = [tiles._nobody(np.random.default_rng(seed)) for seed in range(40)]
    for tile, counts in kinds:
        assert tile.shape == (64, 64, 3) and counts.shape == (8, 8)
        assert np.nansum(counts) == 0


def test_the_head_of_everybody_drawn_is_where_its_point_is() -> None:
    picture, points = crowd(np.random.default_rng(5), 640, 480, rows=1)
    assert len(points) > 20 and (points >= 0).all() and (points < (640, 480)).all()
    ground = picture[300, 320].astype(int)
    for x, y in points.astype(int):
        assert np.abs(picture[y, x].astype(int) - ground).max() > 30  # hair or skin


def test_drawn_crowds_are_a_data_set_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("first", "again"):
        crowds(str(tmp_path / name), 3)
    samples, others = (load("csv", tmp_path / name, "train") for name in ("first", "again"))
    assert [sample.name for sample in samples] == ["00.png", "01.png", "02.png"]
    for sample, other in zip(samples, others, strict=True):
        assert np.array_equal(sample.points, other.points) and len(sample.points) > 50
        assert sample.image.read_bytes() == other.image.read_bytes()
