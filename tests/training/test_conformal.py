import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uepnet.model.errors import DataError
from uepnet.training.conformal import coverage, fit
from uepnet.training.folds import folds, independent, mean_of, spread


@given(st.integers(10, 5000), st.integers(2, 8))
def test_folds_are_runs_of_consecutive_pictures_that_cover_all(number: int, parts: int) -> None:
    made = folds(number, parts)
    assert np.concatenate(made).tolist() == list(range(number))
    assert max(map(len, made)) - min(map(len, made)) <= 1


@given(st.integers(1, 500), st.integers(1, 200))
def test_spread_reaches_both_ends(number: int, wanted: int) -> None:
    chosen = spread(number, wanted)
    assert chosen[0] == 0 and len(chosen) == len(set(chosen)) <= min(number, wanted)
    assert wanted == 1 or chosen[-1] == number - 1


def test_neighbours_that_agree_are_worth_less() -> None:
    rng = np.random.default_rng(1)
    alone = rng.normal(size=200)
    walk = np.repeat(rng.normal(size=20), 10)
    assert independent(alone) > 150
    assert independent(walk) < 30
    assert mean_of(walk).error > 2 * mean_of(alone).error
    assert independent([2.0] * 9) == 9
    assert mean_of([1.0]).error == math.inf
    assert mean_of([2.0] * 9).bounds == (2.0, 2.0)


@pytest.mark.parametrize(
    ("number", "alike", "least"), [(10, 0.0, 0.88), (20, 0.5, 0.82), (60, 0.0, 0.87), (60, 0.8, 0.82)]
)
def test_the_bounds_of_a_mean_hold_for_frames_that_resemble_their_neighbours(
    number: int, alike: float, least: float
) -> None:
    rng = np.random.default_rng(3)
    held = []
    for _ in range(400):
        values = rng.normal(size=number)
        for index in range(1, number):
            values[index] = alike * values[index - 1] + math.sqrt(1 - alike**2) * values[index]
        low, high = mean_of(values).bounds
        held.append(low <= 0 <= high)
    assert least <= np.mean(held) <= 0.97


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0, 500)), min_size=5, max_size=40))
def test_there_is_always_a_range_around_the_count(pairs: list[tuple[float, float]]) -> None:
    counts, truths = zip(*pairs, strict=True)
    low, high = fit(counts, truths).range(50.0)
    assert 0 <= low < 50 < high < math.inf


@pytest.mark.parametrize(("pictures", "least", "most"), [(10, 0.88, 1.0), (20, 0.88, 0.99), (60, 0.86, 0.96)])
def test_the_range_holds_for_new_pictures_of_the_same_kind(pictures: int, least: float, most: float) -> None:
    """Errors grow with the count; the mean coverage over many draws of so many pictures."""
    rng = np.random.default_rng(7)
    held = []
    for _ in range(150):
        counts = rng.uniform(5, 60, pictures + 40)
        truths = np.maximum(0, counts + rng.normal(0, 0.4, counts.shape) * counts**0.7)
        fitted = fit(counts[:pictures].tolist(), truths[:pictures].tolist())
        bounds = [fitted.range(count) for count in counts[pictures:]]
        held += [low <= truth <= high for (low, high), truth in zip(bounds, truths[pictures:], strict=True)]
    assert least <= np.mean(held) <= most


def test_coverage_is_measured_without_the_picture_s_own_block() -> None:
    truths = [10.0] * 30
    counts = [10.0] * 20 + [40.0] * 10  # the last block is off, which the others cannot know
    blocks = [range(10), range(10, 20), range(20, 30)]
    assert coverage(counts, truths, blocks) == pytest.approx(2 / 3)


def test_hardly_any_pictures_are_refused() -> None:
    with pytest.raises(DataError, match="at least 5 pictures"):
        fit([1.0] * 4, [1.0] * 4)
