import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenes import spectra_of
from support.toy import toy_artifact

from uepnet.model.artifact import Scales
from uepnet.model.passes import (
    Answer,
    Passes,
    Size,
    cell_owners,
    gathered,
    run_passes,
    too_small,
)
from uepnet.model.regions import Box
from uepnet.model.tiling import cells_shape

SCALES = Scales(first_side=256, crowded=0.2, beside=0.1, least_people=0.3, empty_until=0.0)


class Drawn:
    """Answers for a crowd drawn as people per pixel of a unit square; remembers what was looked at."""

    def __init__(self, density: np.ndarray) -> None:
        self.density = density  # [n, n], people in each part of the picture
        self.looks: list[tuple[Size, Sequence[Box]]] = []

    def __call__(self, size: Size, boxes: Sequence[Box]) -> Answer:
        self.looks.append((size, boxes))
        rows, columns = cells_shape(*size, 8)
        n = len(self.density)
        y = np.minimum((np.arange(rows) + 0.5) * 8 / size[1] * n, n - 1).astype(int)
        x = np.minimum((np.arange(columns) + 0.5) * 8 / size[0] * n, n - 1).astype(int)
        people = self.density[np.ix_(y, x)] * n * n * 64 / (size[0] * size[1])
        return Answer(people.astype(np.float32), None, people > 0, np.zeros(people.shape, bool))


def run(
    width: int,
    height: int,
    density: np.ndarray,
    scales: Scales = SCALES,
    detail: Callable[[float, float], float] = lambda x, y: 1.0,
) -> tuple[Passes, Drawn]:
    """`detail`: of a place (x, y) in sizes of the picture, in 32nds."""
    drawn = Drawn(density)

    def spectra(centres: Sequence[tuple[float, float]]) -> np.ndarray:
        return spectra_of([detail(x / width, y / height) for x, y in centres])

    return run_passes(width, height, scales, 8, drawn, spectra), drawn


def test_large_heads_need_one_pass_whatever_the_resolution() -> None:
    sparse = np.full((8, 8), 0.1)  # 6 people: 0.006 in each of 1024 cells
    for times in (1, 3):
        passes, _ = run(1024 * times, 768 * times, sparse)
        assert [one.size for one in passes.passes] == [(296, 222)]


def test_small_heads_are_looked_at_larger_until_they_are_large_enough() -> None:
    crowd = np.zeros((8, 8))
    crowd[2:5, 2:5] = 100.0  # 6.25 in each cell of the first pass, 1.6 of the second, 0.4, 0.1
    passes, drawn = run(2400, 2400, crowd)
    assert [size for size, _ in drawn.looks] == [(256, 256), (512, 512), (1024, 1024), (2048, 2048)]
    centre = passes.owner[passes.owner.shape[0] * 7 // 16, passes.owner.shape[1] * 7 // 16]
    assert centre == 3 and passes.owner[0, -1] == 0
    looked = sum(width * height for _, _, width, height in drawn.looks[-1][1])
    assert looked < 0.3 * 2048**2


CROWDED = np.full((8, 8), 1e6)  # everywhere, at any size


@given(st.integers(1, 3000), st.integers(1, 3000), st.sampled_from([1.4, 2.0, 3.0]), st.integers(4, 32))
def test_the_first_size_is_bounded_and_the_last_is_worth_the_detail(
    width: int, height: int, step: float, bands: int
) -> None:
    scales = SCALES.model_copy(update={"step": step})
    passes, _ = run(width, height, CROWDED, scales, lambda x, y: bands / 32)
    sizes = [one.size for one in passes.passes]
    if min(width, height) >= 8 and width * height > 256**2:
        assert sizes[0][0] * sizes[0][1] <= 1.1 * 256**2 + max(sizes[0])
    assert all(left[0] * left[1] <= right[0] * right[1] for left, right in pairwise(sizes))
    if len(sizes) > 1:
        assert sizes[-1][0] <= max(1, math.ceil(scales.finest * bands / 32 * width))


def test_an_enlarged_picture_runs_through_the_sizes_of_the_original() -> None:
    def sizes(width: int, height: int, detail: float) -> list[Size]:
        return [one.size for one in run(width, height, CROWDED, SCALES, lambda x, y: detail)[0].passes]

    assert sizes(1024, 768, 0.875) == sizes(2048, 1536, 0.4375) == sizes(4096, 3072, 0.21875)
    assert len(sizes(4096, 3072, 0.875)) == len(sizes(1024, 768, 0.875)) + 2


def test_each_part_of_a_picture_is_looked_at_at_the_scale_of_its_own_detail() -> None:
    """Left sharp, right enlarged: each half runs through the sizes that it would have alone."""

    def alone(bands: int) -> list[Size]:
        return [one.size for one in run(2048, 1536, CROWDED, SCALES, lambda x, y: bands / 32)[0].passes]

    passes, _ = run(2048, 1536, CROWDED, SCALES, lambda x, y: (24 if x < 0.5 else 12) / 32)
    sizes = [one.size for one in passes.passes]
    assert sizes == sorted({*alone(24), *alone(12)})
    owner = passes.owner
    quarter = owner.shape[1] // 4
    assert {sizes[index] for index in np.unique(owner[:, :quarter])} == {alone(24)[-1]}
    assert {sizes[index] for index in np.unique(owner[:, -quarter:])} == {alone(12)[-1]}


def test_a_size_close_to_the_pictures_own_is_its_own() -> None:
    def sizes(first_side: float) -> list[Size]:
        scales = SCALES.model_copy(update={"first_side": first_side, "finest": 1.1})
        return [one.size for one in run(1920, 1080, CROWDED, scales)[0].passes]

    assert sizes(724.0) == [(965, 543), (1920, 1080)]  # twice would be 1930x1086
    assert sizes(705.0) == [(940, 529), (1880, 1058)]


@given(st.integers(0, 2**32 - 1), st.integers(100, 3000), st.integers(100, 3000))
def test_every_block_is_owned_by_the_finest_pass_that_looked_at_it(seed: int, width: int, height: int) -> None:
    rng = np.random.default_rng(seed)
    density, bands = rng.gamma(0.1, 40.0, (6, 6)), rng.integers(3, 33, (3, 3))

    def detail(x: float, y: float) -> float:
        return float(bands[int(3 * y), int(3 * x)]) / 32

    passes, _ = run(width, height, density, SCALES, detail)
    finest = np.zeros(passes.owner.shape, int)
    for index, one in enumerate(passes.passes):
        for x, y, box_width, box_height in one.boxes:
            rows = slice(*(round(edge / one.size[1] * finest.shape[0]) for edge in (y, y + box_height)))
            columns = slice(*(round(edge / one.size[0] * finest.shape[1]) for edge in (x, x + box_width)))
            finest[rows, columns] = index
    assert (passes.owner <= finest).all()
    assert passes.owner.max() == len(passes.passes) - 1  # the last pass counts something
    again, _ = run(width, height, density, SCALES, detail)
    assert (again.owner == passes.owner).all()


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 9), st.integers(1, 9))
def test_gathering_loses_nobody(width: int, height: int, rows: int, columns: int) -> None:
    cells = np.random.default_rng(width).random(cells_shape(width, height, 8)).astype(np.float32)
    found = gathered(cells, (width, height), (rows, columns), 8)
    assert found.shape == (rows, columns)
    assert found.sum() == pytest.approx(cells.sum(), rel=1e-5)


def test_each_cell_has_the_owner_of_the_block_that_holds_its_centre() -> None:
    owner = np.array([[0, 1], [2, 3]], np.uint8)
    owners = cell_owners(owner, (24, 20), 8)  # columns' centres 4, 12, 20 of 24; rows' centres 4, 12, 18 of 20
    assert owners.tolist() == [[0, 1, 1], [2, 3, 3], [2, 3, 3]]


def answer(counts: np.ndarray) -> Answer:
    return Answer(counts.astype(np.float32), None, counts > 0, np.zeros(counts.shape, bool))


def test_a_block_beside_a_crowded_one_follows_it_at_a_lower_crowding() -> None:
    counts = np.zeros((8, 40))
    counts[:, 0:8] = 0.5  # crowded
    counts[:, 16:24] = 0.15  # as crowded as a block beside one must be, but further off
    counts[:, 24:40] = 0.15
    looked = np.ones((1, 5), bool)
    scales = SCALES.model_copy(update={"beside": 0.12})
    assert too_small(answer(counts), (320, 64), looked, scales, 1.0, 8).tolist() == [[True, False, False, False, False]]
    counts[:, 8:16] = 0.15
    wanted = too_small(answer(counts), (320, 64), looked, scales, 1.0, 8)
    assert wanted.tolist() == [[True, True, True, False, False]]


def test_blocks_with_nobody_are_counted_again_up_to_a_scale() -> None:
    nobody = answer(np.zeros((16, 16)))
    looked = np.ones((2, 2), bool)
    scales = SCALES.model_copy(update={"empty_until": 0.25})
    assert too_small(nobody, (128, 128), looked, scales, 0.2, 8).all()
    assert not too_small(nobody, (128, 128), looked, scales, 0.3, 8).any()


def test_the_scales_are_no_part_of_what_a_graph_depends_on() -> None:
    plain = toy_artifact()
    assert toy_artifact(scales=SCALES).inference_hash == plain.inference_hash


def test_a_block_that_the_network_doubts_is_looked_at_again() -> None:
    counts = np.full((8, 16), 0.05)
    variance = np.where(np.arange(16) < 8, 0.01, 0.0001) * np.ones((8, 1))  # of squares of 0.0025
    doubted = Answer(counts.astype(np.float32), variance.astype(np.float32), counts > 0, np.zeros(counts.shape, bool))
    looked = np.ones((1, 2), bool)
    found = {
        doubt: too_small(doubted, (128, 64), looked, SCALES.model_copy(update={"doubt": doubt}), 1.0, 8).tolist()
        for doubt in (1.0, 3.0)
    }
    assert found == {1.0: [[True, True]], 3.0: [[False, False]]}  # both blocks see the mean over both: 2
