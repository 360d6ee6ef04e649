"""The laws of the partition, and the paper's numbers on the paper's data."""

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenes import release

from uepnet.cli import main
from uepnet.commands import train as train_command
from uepnet.model.errors import DataError
from uepnet.model.intervals import classify
from uepnet.training.data import dataset
from uepnet.training.data.targets import local_counts, local_counts_of
from uepnet.training.partition import T_0, Method, TopInterval, discretisation_error, partition, uniform_error
from uepnet.training.prepare import make_artifact, repeated, training_parts

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
@given(st.one_of(continuous, tied), st.integers(3, 12), st.sampled_from(["largest", "filled"]))
def test_n_times_l_is_uniform_up_to_one_block_of_ties(counts: np.ndarray, intervals: int, top: TopInterval) -> None:
    ordered = np.sort(counts[counts >= T_0])
    try:
        borders = uniform_error(ordered, intervals, T_0, top)
    except DataError:
        return  # ties may leave no such partition: saying so is the other right answer
    # The search moved the last border of `largest` to the largest count: the others come from the pass.
    edges = borders[:-1] if top == "largest" else borders
    # An interval's error with and without the block of equal counts that ended it encloses the common target.
    with_block, without = [np.inf], [0.0]
    start = 0
    for left, right in pairwise(edges):
        through = np.searchsorted(ordered, right, side="right") - start
        before_value = ordered[np.searchsorted(ordered, right, side="left") - 1]
        before = np.searchsorted(ordered, right, side="left") - start
        with_block.append((right - left) * through)
        without.append((before_value - left) * before if before else 0.0)
        start += through
    assert max(without) <= min(with_block) * (1 + 1e-9)


@settings(max_examples=40)
@given(continuous, st.integers(3, 12))
def test_the_top_interval_holds_the_largest_count_alone_or_as_much_as_the_others(
    counts: np.ndarray, intervals: int
) -> None:
    alone, filled = (partition(counts, intervals, heads="single", top=top) for top in ("largest", "filled"))
    assert alone.heads[0].borders[-1] == alone.t_max == counts.max()
    assert alone.samples[0][-1] == 1
    assert filled.heads[0].borders[-1] < filled.t_max
    assert filled.n_l(0)[-1] > 0


def algorithm_1(ordered: np.ndarray, intervals: int) -> tuple[list[float], list[float]]:
    """The loop of Algorithm 1 as printed, to the limit of floating point: the endpoints at its last L and H."""
    low, high = 0.0, ordered.size * (ordered[-1] - T_0)
    at_low: list[float] = []
    at_high: list[float] = []
    while low < (target := (low + high) / 2) < high:
        border, n, endpoints = T_0, 0, [T_0]
        for count in ordered:
            n += 1
            if (count - border) * n > target:
                n, border = 0, float(count)
                endpoints.append(border)
        if len(endpoints) >= intervals or (len(endpoints) == intervals - 1 and (ordered[-1] - border) * n > target):
            low, at_low = target, endpoints
        else:
            high, at_high = target, endpoints
    return at_low, at_high


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("intervals", [4, 9])
def test_the_loop_of_algorithm_1_ends_between_the_two_readings(seed: int, intervals: int) -> None:
    """Where its search ends, m intervals become m - 1: from above the top interval is filled, from below it is not."""
    ordered = np.sort(np.random.default_rng(seed).exponential(0.3, 400) + T_0)
    _, above = algorithm_1(ordered, intervals)
    assert uniform_error(ordered, intervals, T_0, "filled").tolist() == above
    below, _ = algorithm_1(ordered, intervals - 1)
    assert len(below) == intervals - 1
    assert uniform_error(ordered, intervals, T_0, "largest").tolist() == below


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


def _maps(name: str, root: Path, cell: int = 8) -> list[np.ndarray]:
    return [local_counts(s.points, s.kernel.sigmas(s.points, *s.size), s.size, cell) for s in dataset.load(name, root)]


@pytest.mark.data
def test_part_b_s_discretisation_error_has_the_size_that_the_paper_reports(real_data: Callable[[str], Path]) -> None:
    maps = _maps("shanghaitech-b", real_data("ShanghaiTech"))
    counts = np.concatenate([counts.ravel() for counts in maps])
    errors = {
        proxies: discretisation_error(maps, partition(counts, proxies=proxies).heads[0])
        for proxies in ("mean", "midpoint")
    }
    assert errors["mean"] == pytest.approx(0.27, abs=0.1)  # the paper: 0.27 on the test split
    assert errors["midpoint"] == pytest.approx(1.88, abs=0.4)  # the paper: 1.88


@pytest.mark.data
def test_part_a_is_divided_into_intervals_of_equal_error_below_its_largest_count(
    real_data: Callable[[str], Path],
) -> None:
    counts = np.concatenate([counts.ravel() for counts in _maps("shanghaitech-a", real_data("ShanghaiTech"))])
    made = partition(counts)
    *closed, top = made.n_l(0)
    assert np.ptp(closed) / np.mean(closed) < 0.01
    assert top == 0 and made.samples[0][-1] == 1
    assert made.heads[0].borders[-1] == made.t_max


@pytest.mark.parametrize(
    "options",
    ["--preset fast", "--input-scale 1.5", "--preset paper --train-on all", "--train-on fit --top-interval filled"],
)
def test_the_command_shows_the_intervals_that_training_uses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str
) -> None:
    release(tmp_path / "crowds", images=24)
    data = ["--dataset", "shanghaitech-a", "--root", str(tmp_path / "crowds"), "--intervals", "6", *options.split()]
    assert main(["partition", *data, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    parser = argparse.ArgumentParser()
    train_command.configure(parser)
    config = train_command._config(parser.parse_args(data))
    artifact = make_artifact("run", config, repeated(training_parts(config), ()))
    assert [tuple(head["borders"]) for head in shown["heads"]] == [head.borders for head in artifact.heads]
    assert [tuple(head["proxies"]) for head in shown["heads"]] == [head.proxies for head in artifact.heads]
    assert shown["t_max"] == artifact.t_max


def test_a_larger_scale_spreads_people_over_more_cells(tmp_path: Path) -> None:
    samples = dataset.load("shanghaitech-a", release(tmp_path / "crowds", images=6), "train")
    small, large = (local_counts_of(samples, 8, scale=scale) for scale in (1.0, 2.0))
    assert large.size == 4 * small.size
    assert large.sum() == pytest.approx(small.sum(), rel=1e-4)  # nobody is lost
    assert large.max() < small.max()


def test_a_split_and_an_option_of_training_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["partition", "--dataset", "csv", "--root", str(tmp_path), "--split", "fit", "--train-on", "fit"]
    assert main(line) == 2
    assert "use --train-on" in capsys.readouterr().err
