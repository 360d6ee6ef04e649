"""Smoothing and limits: the laws that hold for any counts, and the cases that people rely on."""

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uepnet.model.errors import InputError
from uepnet.model.smoothing import Breach, Hysteresis, LimitWatch, MedianWindow

COUNTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=60)


def timed(steps: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Steps in time and values -> (time, value) with times that do not decrease."""
    time, values = 0.0, []
    for step, value in steps:
        time += step
        values.append((time, float(value)))
    return values


def breaches(rule: Hysteresis, values: list[tuple[float, float | None]]) -> list[Breach]:
    """All that `update` tells, in order."""
    watch = LimitWatch(rule)
    return [breach for time, value in values if (breach := watch.update(time, value)) is not None]


@given(COUNTS, st.integers(1, 30))
def test_the_smoothed_value_is_the_median_of_the_window(steps: list[tuple[int, int]], seconds: int) -> None:
    values = timed(steps)
    window = MedianWindow(seconds)
    for index, (time, value) in enumerate(values):
        recent = [old for when, old in values[: index + 1] if when > time - seconds]
        assert window.add(time, value) == median(recent)


@given(COUNTS)
def test_without_a_window_each_value_is_its_own_median(steps: list[tuple[int, int]]) -> None:
    window = MedianWindow(0)
    assert all(window.add(time, value) == value for time, value in timed(steps))


def test_one_wrong_count_does_not_show_in_the_smoothed_value() -> None:
    window = MedianWindow(5)
    assert [window.add(second, count) for second, count in enumerate((10, 10, 90, 10, 10))] == [10, 10, 10, 10, 10]


def test_values_before_a_long_gap_are_forgotten() -> None:
    window = MedianWindow(5)
    window.add(0, 80)
    window.add(1, 80)
    assert window.add(100, 2) == 2


def test_a_count_that_flickers_around_the_limit_is_one_breach() -> None:
    counts = [30, 41, 39, 42, 38, 40, 37, 43, 30]
    told = breaches(Hysteresis(raise_at=40), [(float(n), float(count)) for n, count in enumerate(counts)])
    assert told == [Breach(1, 1, 41, 1), Breach(1, 1, 43, 7, end=8)]


def test_a_limit_has_to_be_exceeded_for_some_time() -> None:
    rule = Hysteresis(raise_at=40, for_seconds=10)
    assert breaches(rule, [(0, 50), (9, 50), (9.5, 20), (10, 50), (19, 50)]) == []
    assert breaches(rule, [(0, 50), (5, 60), (10, 50)]) == [Breach(0, 10, 60, 5)]


def test_a_gap_ends_no_alert_and_raises_none() -> None:
    rule = Hysteresis(raise_at=40, for_seconds=10)
    assert breaches(rule, [(0, 50), (5, None), (12, 50), (21, 50)]) == []  # it has to hold from 12 on
    watch = LimitWatch(Hysteresis(raise_at=40))
    watch.update(0, 50)
    assert watch.update(1, None) is None
    assert watch.open == Breach(0, 0, 50, 0)


def test_after_an_alert_none_follows_within_the_cooldown() -> None:
    rule = Hysteresis(raise_at=40, cooldown_seconds=60)
    told = breaches(rule, [(0, 50), (1, 10), (2, 50), (30, 50), (60.5, 50), (61, 50)])
    assert [(breach.raised, breach.end) for breach in told] == [(0, None), (0, 1), (61, None)]
    assert told[-1].start == 2


@given(COUNTS, st.integers(1, 100), st.integers(0, 30), st.integers(0, 30))
def test_alerts_alternate_and_keep_their_rule(
    steps: list[tuple[int, int]], level: int, for_seconds: int, cooldown: int
) -> None:
    rule = Hysteresis(level, for_seconds=for_seconds, cooldown_seconds=cooldown)
    values = timed(steps)
    cleared: float | None = None
    for number, breach in enumerate(breaches(rule, list(values))):
        assert (breach.end is None) == (number % 2 == 0)  # raised, cleared, raised, ...
        if breach.end is not None:
            cleared = breach.end
            continue
        assert breach.raised - breach.start >= for_seconds
        assert cleared is None or breach.raised - cleared >= cooldown
        held = [value for time, value in values if breach.start < time < breach.raised]
        assert all(value >= level for value in held)
        assert breach.peak >= level


@pytest.mark.parametrize(
    "rule",
    [
        {"raise_at": 0},
        {"raise_at": float("nan")},
        {"raise_at": 10, "clear_below": 11},
        {"raise_at": 10, "clear_below": 0},
        {"raise_at": 10, "for_seconds": -1},
        {"raise_at": 10, "cooldown_seconds": float("inf")},
    ],
)
def test_impossible_rules_are_refused(rule: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Hysteresis(**rule)


def test_a_window_below_zero_is_refused() -> None:
    with pytest.raises(InputError):
        MedianWindow(-1)


def test_times_that_run_backwards_and_counts_that_are_no_numbers_are_the_callers_mistake() -> None:
    window, watch = MedianWindow(5), LimitWatch(Hysteresis(10))
    window.add(10, 1)
    watch.update(10, 1)
    for wrong in (lambda: window.add(9, 1), lambda: watch.update(9, 1), lambda: window.add(11, float("nan"))):
        with pytest.raises(ValueError, match=r"lies before|finite"):
            wrong()
