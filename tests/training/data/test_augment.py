from dataclasses import replace

import numpy as np
import pytest

from uepnet.training.data.augment import Augment, crop
from uepnet.training.data.targets import Kernel

PADDING = (127, 127, 127)


def picture(width: int, height: int, points: np.ndarray) -> np.ndarray:
    """Black, with a white square of 9 pixels at each point."""
    image = np.zeros((height, width, 3), np.uint8)
    for x, y in points.astype(int):
        image[max(0, y - 4) : y + 5, max(0, x - 4) : x + 5] = 255
    return image


def test_image_and_counts_move_together() -> None:
    rng = np.random.default_rng(0)
    points = np.array([[100.5, 60.5], [200.5, 150.5], [40.5, 180.5], [270.5, 30.5]])
    image = picture(320, 240, points)
    augment = Augment(size=128, scale=(0.5, 1.5))
    seen = 0
    for _ in range(200):
        tile, counts = crop(image, points, Kernel(fixed=3.0), augment, rng, 8, (0, 0, 0))
        assert tile.shape == (128, 128, 3) and counts.shape == (16, 16)
        if not 0.99 < counts.sum() < 1.01:  # one whole person in view
            continue
        seen += 1
        light = tile[..., 0].astype(float)
        y, x = (float((light * axis).sum() / light.sum()) + 0.5 for axis in np.mgrid[0:128, 0:128])
        rows, columns = (np.mgrid[0:16, 0:16] + 0.5) * 8
        assert x == pytest.approx(float((counts * columns).sum() / counts.sum()), abs=2)
        assert y == pytest.approx(float((counts * rows).sum() / counts.sum()), abs=2)
    assert seen > 20


def test_outside_the_image_there_is_padding_and_nobody() -> None:
    points = np.array([[16.0, 16.0]])
    image = np.full((32, 32, 3), 200, np.uint8)
    tile, counts = crop(
        image, points, Kernel(fixed=2.0), Augment(128, scale=(1, 1), mirror=False), np.random.default_rng(0), 8, PADDING
    )
    assert (tile[:32, :32] == 200).all()
    assert (tile[40:] == 127).all() and (tile[:, 40:] == 127).all()
    assert counts.sum() == pytest.approx(1, rel=1e-5)
    assert counts[4:].sum() == 0 and counts[:, 4:].sum() == 0


def test_the_edges_of_an_image_are_seen_often() -> None:
    image = np.tile(np.arange(192, dtype=np.uint8)[:, None, None], (1, 256, 3))  # a pixel tells its row
    augment = Augment(96, scale=(1, 1), mirror=False)
    seen = np.zeros(192)
    for seed in range(500):
        tile, _ = crop(image, np.zeros((0, 2)), Kernel(), augment, np.random.default_rng(seed), 8, PADDING)
        seen[tile[0, 0, 0] : int(tile[-1, 0, 0]) + 1] += 1
    assert min(seen[0], seen[-1]) > 0.25 * seen[100]


def test_cells_beside_a_cut_are_not_judged_and_those_at_the_image_s_edge_are() -> None:
    image = np.tile(np.arange(192, dtype=np.uint8)[:, None, None], (1, 96, 3))
    augment = Augment(96, scale=(1, 1), mirror=False, blind=1)
    cuts = set()
    for seed in range(60):
        tile, counts = crop(image, np.zeros((0, 2)), Kernel(), augment, np.random.default_rng(seed), 8, PADDING)
        above, below = tile[0, 0, 0] > 0, tile[-1, 0, 0] < 191
        judged = np.isfinite(counts)
        assert judged[1:-1].all()  # nothing is cut on the left or right
        assert judged[0].all() == (not above) and judged[-1].all() == (not below)
        cuts.add((bool(above), bool(below)))
    assert cuts == {(False, True), (True, True), (True, False)}


def test_the_far_edge_is_filled_up_as_when_an_image_is_counted() -> None:
    image = np.full((150, 200, 3), 255, np.uint8)
    augment = Augment(96, scale=(1, 1), mirror=False)
    margins = set()
    for seed in range(80):
        tile, _ = crop(image, np.zeros((0, 2)), Kernel(), augment, np.random.default_rng(seed), 8, PADDING)
        margins.add(tuple(int((tile[..., 0] != 255).all(axis).sum()) for axis in (0, 1)))
    assert max(columns for columns, _ in margins) == 224 - 200
    assert max(rows for _, rows in margins) == 160 - 150


@pytest.mark.parametrize("factor", [1.001, 1.004, 1.1])
def test_an_edge_that_does_not_fall_on_a_whole_pixel_is_an_edge(factor: float) -> None:
    image = np.zeros((200, 200, 3), np.uint8)
    augment = Augment(96, scale=(factor, factor), mirror=False, blind=1)
    judged = np.zeros((12, 12), bool)
    for seed in range(60):
        _, counts = crop(image, np.zeros((0, 2)), Kernel(), augment, np.random.default_rng(seed), 8, PADDING)
        judged |= np.isfinite(counts)
    assert judged.all()


def test_the_paper_s_crop_is_a_quarter_of_the_area_in_whole_network_steps() -> None:
    image = np.zeros((600, 800, 3), np.uint8)
    tile, counts = crop(
        image, np.zeros((0, 2)), Kernel(), Augment(0, scale=(1, 1)), np.random.default_rng(0), 8, PADDING
    )
    height, width = tile.shape[:2]
    assert (width, height) == (416, 288) or (abs(width - 400) <= 16 and abs(height - 300) <= 16)
    assert width % 32 == height % 32 == 0
    assert counts.shape == (height // 8, width // 8)


def test_the_same_randomness_gives_the_same_tile() -> None:
    rng = np.random.default_rng(7)
    image = rng.integers(0, 256, (300, 400, 3), dtype=np.uint8)
    points = rng.uniform(0, 300, (20, 2))
    augment = Augment(128, jitter=0.3)
    made = [crop(image, points, Kernel(), augment, np.random.default_rng(3), 8, PADDING) for _ in range(2)]
    assert np.array_equal(made[0][0], made[1][0]) and np.array_equal(made[0][1], made[1][1])


def test_another_light_and_camera_change_the_picture_alone() -> None:
    points = np.array([[40.5, 40.5]])
    image = picture(96, 96, points) // 2 + 60  # grey, so that any light changes it
    plain = Augment(size=96, scale=(1, 1), mirror=False)
    tiles = []
    for seed in range(40):
        tile, counts = crop(
            image, points, Kernel(fixed=3.0), replace(plain, jitter=0.3), np.random.default_rng(seed), 8, PADDING
        )
        assert tile.shape == (96, 96, 3) and tile.dtype == np.uint8 and tile.flags.writeable
        assert counts.sum() == pytest.approx(1, rel=1e-4)
        assert tile[36:45, 36:45].mean() > tile[60:, 60:].mean() + 40  # the person can still be seen
        tiles.append(tile)
    assert len({tile.tobytes() for tile in tiles}) == 40
    coloured = [tile for tile in tiles if not (tile[..., 0] == tile[..., 2]).all()]
    assert 0 < len(coloured) < 40
