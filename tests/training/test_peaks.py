"""Proposed points are as many as the count map counts, lie where it counts them, and never outside the picture."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment

from uepnet.model.counter import Counter
from uepnet.training.data import synthetic
from uepnet.training.peaks import points_of

CELL = 8
MAPS = arrays(np.float32, st.tuples(st.integers(1, 20), st.integers(1, 20)), elements=st.floats(0, 6, width=32))


@given(MAPS)
def test_there_are_as_many_points_as_people_and_all_lie_in_the_picture(counts: np.ndarray) -> None:
    height, width = CELL * counts.shape[0] - 3, CELL * counts.shape[1] - 3  # the last cells are cut by the edge
    points = points_of(counts, CELL, width, height)
    assert points.shape == (round(float(counts.astype(np.float64).sum())), 2)
    assert (points >= 0).all() and (points <= [width, height]).all()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), unique=True, max_size=12))
def test_people_who_fill_a_cell_each_are_found_in_their_cells(places: list[tuple[int, int]]) -> None:
    counts = np.zeros((10, 10), np.float32)
    for row, column in places:
        counts[row, column] = 1
    found = points_of(counts, CELL, 80, 80)
    assert sorted((int(y // CELL), int(x // CELL)) for x, y in found) == sorted(places)
    assert (found % CELL == CELL / 2).all()


def test_a_person_spread_over_cells_is_one_point_at_the_centre() -> None:
    y, x = np.mgrid[0:12, 0:12] * CELL + CELL / 2
    spread = np.exp(-((x - 50) ** 2 + (y - 41) ** 2) / (2 * 9**2))
    (point,) = points_of(spread / spread.sum(), CELL, 96, 96)
    assert point == pytest.approx([50, 41], abs=0.5)


def test_several_people_in_one_cell_are_side_by_side_in_it() -> None:
    counts = np.zeros((3, 3), np.float32)
    counts[1, 1] = 4
    points = points_of(counts, CELL, 24, 24)
    assert sorted(map(tuple, points)) == [(10, 10), (10, 14), (14, 10), (14, 14)]


def test_points_lie_on_the_people_of_a_crowd() -> None:
    """With the bundled model: nearly all proposed points have a person of their own within 16 pixels."""
    picture, people = synthetic.crowd(np.random.default_rng(2021), 640, 480, 22)
    count = Counter(threads=1).count(picture)
    points = points_of(count.count_map, count.cell, count.width, count.height)
    assert len(points) == round(count.count)
    distances = np.linalg.norm(points[:, None] - people[None], axis=2)
    found = distances[linear_sum_assignment(np.minimum(distances, 100))] <= 16
    assert found.sum() > 0.85 * len(people)
