"""What a model knows is rehearsed on strange pictures, with its own counts as labels."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from support.scenes import scene

from uepnet.model.count import Tile
from uepnet.model.decode import Maps
from uepnet.training.data.augment import Augment
from uepnet.training.data.batches import Tiles
from uepnet.training.data.dataset import Sample
from uepnet.training.data.rehearsal import rehearsal

SIDE, CELL = 64, 8


def brightness(tiles: Iterator[Tile], counts: bool = True) -> Iterator[Maps]:
    """A model that counts the mean brightness of each cell."""
    for tile in tiles:
        cells = tile.mean(axis=2).reshape(SIDE // CELL, CELL, SIDE // CELL, CELL).mean(axis=(1, 3))
        yield Maps((), counts=cells.astype(np.float32) if counts else None)


@pytest.fixture
def samples(tmp_path: Path) -> list[Sample]:
    made = []
    for number, (width, height) in enumerate([(128, 96), (40, 200)]):  # one is narrower than a piece usually is
        image, points = scene(np.random.default_rng(number), 6, width, height)
        image.save(tmp_path / f"{number}.png")
        made.append(Sample(f"{number}.png", tmp_path / f"{number}.png", partial(np.array, points)))
    return made


def test_strange_tiles_have_the_counts_of_the_model_that_is_fine_tuned(samples: list[Sample]) -> None:
    made = rehearsal(samples, 12, SIDE, seed=1, run=brightness)
    assert len(made) == 12
    for tile, counts in made:
        assert tile.shape == (SIDE, SIDE, 3) and tile.dtype == np.uint8 and tile.flags.writeable
        assert counts.mean() == pytest.approx(tile.mean(), rel=1e-4)
    assert len({tile.tobytes() for tile, _ in made}) == 12
    again = rehearsal(samples, 12, SIDE, seed=1, run=brightness)
    assert all(np.array_equal(one[0], other[0]) for one, other in zip(made, again, strict=True))


def test_a_model_without_expected_counts_rehearses_nothing(samples: list[Sample]) -> None:
    assert rehearsal(samples, 3, SIDE, seed=1, run=partial(brightness, counts=False)) == []


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.25, 30, 70), (1.0, 200, 200)])
def test_their_share_of_the_training_tiles(samples: list[Sample], share: float, least: int, most: int) -> None:
    white = (np.full((SIDE, SIDE, 3), 255, np.uint8), np.full((SIDE // CELL, SIDE // CELL), 7, np.float32))
    tiles = Tiles(samples, Augment(SIDE), CELL, (0, 0, 0), seed=3, rehearsed=[white], rehearsed_share=share)
    drawn = [tiles[position] for position in range(200)]
    rehearsed = [counts for _, counts in drawn if torch.equal(counts, torch.full_like(counts, 7))]
    assert least <= len(rehearsed) <= most
