"""Which blocks are looked at again together, and how much larger."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenes import spectra_of

from uepnet.model.artifact import Scales
from uepnet.model.detail import ends
from uepnet.model.levels import SPREAD, next_looks
from uepnet.model.regions import Mask

SCALES = Scales(first_side=512, finest=2.0, crowded=0.1, beside=0.1)


def looks(detail: np.ndarray, scale: float, wanted: Mask | None = None) -> list[tuple[float, Mask]]:
    """`detail`: of each block, in 32nds"""
    wanted = np.ones(detail.shape, bool) if wanted is None else wanted
    return next_looks(scale, wanted, spectra_of(detail[wanted] / 32), SCALES)


def test_blocks_of_the_same_detail_share_one_look() -> None:
    ((scale, blocks),) = looks(np.full((6, 8), 24), 1.0)
    assert scale == 1.5 and blocks.all()


def test_a_look_is_a_step_larger_at_most_and_left_out_where_it_is_worth_too_little() -> None:
    assert [scale for scale, _ in looks(np.full((6, 8), 24), 0.5)] == [1.0]
    assert looks(np.full((6, 8), 16), 0.9) == []


def test_a_soft_region_beside_a_sharp_one_has_a_look_of_its_own() -> None:
    detail = np.full((6, 12), 24)
    detail[:, 6:] = 16
    (soft, right), (sharp, left) = looks(detail, 0.8)
    assert (soft, sharp) == (1.0, 1.5)
    assert left[:, :6].all() and right[:, 6:].all() and not (left & right).any()


def test_an_odd_block_follows_those_around_it() -> None:
    """A patch may be flat, or hold nothing but an edge."""
    detail = np.full((6, 8), 24)
    detail[2, 3] = 3
    ((scale, blocks),) = looks(detail, 1.0)
    assert scale == 1.5 and blocks.all()


def test_far_blocks_tell_where_there_are_few() -> None:
    wanted = np.zeros((40, 40), bool)
    wanted[::13, ::13] = True
    detail = np.full((40, 40), 24)
    detail[0, 0] = 3
    ((scale, blocks),) = looks(detail, 1.0, wanted)
    assert scale == 1.5 and (blocks == wanted).all()


def test_a_sharp_block_among_soft_ones_goes_on() -> None:
    """Where blocks are large, a block may be all that is seen of a sharp picture."""
    detail = np.full((6, 8), 8)
    detail[3, 3] = 32
    (_, soft), (scale, sharp) = looks(detail, 0.4)
    assert scale == 0.8 and sharp[3, 3] and sharp.sum() == 1 and (soft != sharp).all()


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 2))
def test_each_wanted_block_is_in_one_look_at_most_and_few_looks_are_enough(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 12, 2))
    wanted = rng.random(shape) < 0.7
    wanted.flat[0] = True
    detail = rng.integers(2, 33, (2, 2)).repeat(6, 0).repeat(6, 1)[: shape[0], : shape[1]]
    found = looks(detail, scale, wanted)
    assert not sum((blocks.astype(int) for _, blocks in found), np.zeros(shape, int))[~wanted].any()
    assert sum((blocks.astype(int) for _, blocks in found), np.zeros(shape, int)).max() <= 1
    scales = [larger for larger, _ in found]
    assert scales == sorted(set(scales))
    for larger, blocks in found:
        assert blocks.any() and SCALES.smallest_step * scale <= larger <= SCALES.step * scale
    # From the smallest detail to the largest in even steps, no more of them than the spread needs.
    assert len(found) <= 1 + np.log(32) / np.log(SPREAD)
    again = looks(detail, scale, wanted)
    assert all((one[1] == other[1]).all() for one, other in zip(found, again, strict=True))


def test_the_spectra_of_a_look_are_measured_together() -> None:
    energy = spectra_of([20 / 32] * 20 + [22 / 32] * 4)
    wanted = np.ones((4, 6), bool)
    ((scale, _),) = next_looks(1.0, wanted, energy, SCALES)
    assert scale == pytest.approx(2 * float(ends(energy.sum(axis=0, keepdims=True))[0]))
