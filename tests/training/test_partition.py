"""The laws of the partition, and the paper's numbers on the paper's data."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uepnet.model.errors import DataError
from uepnet.model.intervals import classify
from uepnet.training import dataset
from uepnet.training.partition import T_0, Method, discretisation_error, partition, uniform_error
from uepnet.training.targets import local_counts

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "ShanghaiTech"
METHODS: list[Method] = ["uep", "uniform-length", "uniform-number", "two-linear", "log"]

continuous = st.builds(
    lambda seed, size, scale: np.random.default_rng(seed).exponential(scale, size) + 1e-6,
    st.integers(0, 10_000),
    st.integers(500, 3000),
    st.floats(0.05, 2.0),
)
# Counts on a coarse grid: many ties.
tied = continuous.map(lambda counts: np.round(counts * 50) / 50)


@settings(max_examples=40)
@given(continuous, st.integers(3, 40))
def test_uep_gives_exactly_the_intervals_asked_for_with_rising_borders(counts: np.ndarray, intervals: int) -> None:
    made = partition(counts, intervals)
    first, second = made.heads
    assert len(first.borders) == intervals - 1
    assert len(first.proxies) == intervals
    assert len(second.borders) == intervals
    assert first.borders[0] == second.borders[0] == T_0
    assert second.borders[1:] == first.proxies[1:]
    for head in made.heads:
        assert np.all(np.diff(head.borders) > 0)


@settings(max_examples=40)
@given(continuous, st.sampled_from(METHODS))
def test_proxies_and_counts_have_the_same_sum_above_the_background(counts: np.ndarray, method: Method) -> None:
    made = partition(counts, 12, method=method, knee=float(np.median(counts)))
    foreground = counts[counts >= T_0].sum()
    for head, samples in zip(made.heads, made.samples, strict=True):
        assert np.dot(head.proxies, samples) == pytest.approx(foreground, rel=1e-9)


@settings(max_examples=40)
@given(continuous)
def test_every_count_belongs_to_exactly_one_interval(counts: np.ndarray) -> None:
    made = partition(counts, 10)
    for head, samples in zip(made.heads, made.samples, strict=True):
        assert sum(samples) == counts.size
        found = np.bincount(classify(counts, head.borders), minlength=len(head.proxies))
        assert tuple(found) == samples


@settings(max_examples=40)
@given(st.one_of(continuous, tied), st.integers(3, 12))
def test_n_times_l_is_uniform_up_to_one_block_of_ties(counts: np.ndarray, intervals: int) -> None:
    ordered = np.sort(counts[counts >= T_0])
    try:
        borders = uniform_error(ordered, intervals, T_0)
    except DataError:
        return  # ties may leave no such partition: saying so is the other right answer
    edges = np.append(borders, ordered[-1])
    # An interval's error with and without the block of equal counts that ended it encloses the common target.
    with_block, without = [], []
    start = 0
    for left, right in pairwise(edges[:-1]):
        through = np.searchsorted(ordered, right, side="right") - start
        before_value = ordered[np.searchsorted(ordered, right, side="left") - 1]
        before = np.searchsorted(ordered, right, side="left") - start
        with_block.append((right - left) * through)
        without.append((before_value - left) * before if before else 0.0)
        start += through
    assert max(without) <= min(with_block) * (1 + 1e-9)


def test_a_border_never_splits_equal_counts() -> None:
    counts = np.repeat([0.1, 0.2, 0.4, 0.8, 1.6], [500, 1, 300, 7, 20])
    made = partition(counts, 4, heads="single")
    assert set(made.heads[0].borders[1:]) <= {0.1, 0.2, 0.4, 0.8, 1.6}


def test_the_result_does_not_depend_on_the_order_of_the_counts() -> None:
    counts = np.random.default_rng(1).exponential(0.2, 5000)
    assert partition(counts) == partition(counts[::-1].reshape(50, 100))


def test_the_paper_s_epsilon_is_not_needed_small_data_gets_all_its_intervals() -> None:
    counts = np.random.default_rng(2).exponential(0.01, 300)  # n * l of all of it is below the paper's epsilon of 100
    assert len(partition(counts, 25).heads[0].borders) == 24


def test_parallel_heads_are_equal_and_a_single_head_is_alone() -> None:
    counts = np.random.default_rng(3).exponential(0.2, 5000)
    parallel = partition(counts, heads="parallel").heads
    assert parallel[0] == parallel[1]
    assert len(partition(counts, heads="single").heads) == 1


def test_midpoints_lie_in_the_middle_and_t_max_closes_the_top_interval() -> None:
    counts = np.random.default_rng(4).exponential(0.2, 5000)
    made = partition(counts, 10, proxies="midpoint", heads="single")
    edges = np.append(made.heads[0].borders, made.t_max)
    assert np.allclose(made.heads[0].proxies[1:], (edges[:-1] + edges[1:]) / 2)


def test_two_linear_is_fine_below_the_knee_and_coarse_above_it() -> None:
    counts = np.random.default_rng(5).exponential(0.5, 5000)
    borders = np.array(partition(counts, 21, method="two-linear", knee=0.5, heads="single").heads[0].borders)
    steps = np.diff(borders)
    assert np.allclose(steps[:9], steps[0]) and np.allclose(steps[11:], steps[-1])
    assert steps[0] < steps[-1]


@pytest.mark.parametrize(
    ("counts", "intervals", "words"),
    [
        (np.zeros(100), 25, "only 0 distinct"),
        (np.repeat([0.1, 0.2, 0.3], 100), 25, "only 3 distinct"),
        (np.ones(100), 2, "at least 3 intervals"),
        (np.ones(100), 300, "at most 254"),
        (np.array([0.1, np.nan, 0.3]), 3, "not finite"),
        (np.array([T_0, 0.2]), 3, "one value only"),
    ],
)
def test_data_that_cannot_be_divided_is_refused_with_the_reason(counts: np.ndarray, intervals: int, words: str) -> None:
    with pytest.raises(DataError, match=words):
        partition(counts, intervals)


def _maps(name: str, cell: int = 8) -> list[np.ndarray]:
    if not DATA.is_dir():
        pytest.skip("the ShanghaiTech images are not beside the project")
    return [local_counts(s.points, s.kernel.sigmas(s.points, *s.size), s.size, cell) for s in dataset.load(name, DATA)]


@pytest.mark.data
def test_part_b_s_discretisation_error_has_the_size_that_the_paper_reports() -> None:
    maps = _maps("shanghaitech-b")
    counts = np.concatenate([counts.ravel() for counts in maps])
    errors = {
        proxies: discretisation_error(maps, partition(counts, proxies=proxies).heads[0])
        for proxies in ("mean", "midpoint")
    }
    assert errors["mean"] == pytest.approx(0.27, abs=0.1)  # the paper: 0.27 on the test split
    assert errors["midpoint"] == pytest.approx(1.88, abs=0.4)  # the paper: 1.88


@pytest.mark.data
def test_part_a_is_divided_as_its_authors_published_it_into_intervals_of_equal_error() -> None:
    counts = np.concatenate([counts.ravel() for counts in _maps("shanghaitech-a")])
    made = partition(counts)
    *closed, top = made.n_l(0)
    assert np.ptp(closed) / np.mean(closed) < 0.01
    assert 0 < top < 0.05 * np.mean(closed)  # what is left, but a class with samples
    published = {1: 0.00482, 5: 0.0481, 9: 0.142, 13: 0.336, 17: 0.762, 19: 1.21, 21: 2.14}
    for index, border in published.items():
        assert made.heads[0].borders[index] == pytest.approx(border, rel=0.1)
