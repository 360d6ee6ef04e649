import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from uepnet.model.regions import covering

masks = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=12))


@given(masks, st.sampled_from([0.0, 0.5, 2.0]))
def test_every_wanted_block_lies_in_exactly_one_rectangle(wanted: np.ndarray, halo: float) -> None:
    times = np.zeros(wanted.shape, int)
    for x, y, width, height in covering(wanted, halo):
        assert width > 0 and height > 0
        times[y : y + height, x : x + width] += 1
    assert times.max(initial=0) <= 1
    assert (times[wanted] == 1).all()


@given(masks, st.sampled_from([0.0, 0.5, 2.0]))
def test_rectangles_never_cost_more_than_the_whole(wanted: np.ndarray, halo: float) -> None:
    cost = sum((width + 2 * halo) * (height + 2 * halo) for _, _, width, height in covering(wanted, halo))
    rows, columns = wanted.shape
    assert cost <= (rows + 2 * halo) * (columns + 2 * halo) + 1e-6


def test_far_groups_get_rectangles_of_their_own_and_near_ones_share_one() -> None:
    wanted = np.zeros((10, 20), bool)
    wanted[1, 1] = wanted[8, 18] = True
    assert covering(wanted, halo=1) == [(1, 1, 1, 1), (18, 8, 1, 1)]
    wanted[8, 18], wanted[2, 2] = False, True
    assert covering(wanted, halo=1) == [(1, 1, 2, 2)]


def test_nothing_wanted_needs_no_rectangle() -> None:
    assert covering(np.zeros((3, 4), bool), 1) == []
