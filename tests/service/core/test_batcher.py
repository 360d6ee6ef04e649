"""The batcher with runners of plain Python: fairness, shapes, budgets, deadlines, failures."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.waiting import SOON, eventually

from uepnet.model.count import Tile
from uepnet.model.decode import Maps
from uepnet.model.errors import Cancelled, DeadlineExceeded, InferenceError
from uepnet.service.core.batcher import PROBE_AFTER, Batcher, RunBatch
from uepnet.service.core.tile_queue import DeviceJob, DeviceTiming
from uepnet.service.metrics import Metrics

started: list[Batcher] = []


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    while started:
        assert started.pop().stop(SOON)


def tile(value: int, side: int = 32) -> Tile:
    return np.full((side, side, 3), value, np.uint8)


def answer(one: Tile) -> Maps:
    return Maps((one[::8, ::8, 0].copy(),))


class Recorder:
    """Answers each tile with its first value, remembers every batch, and can be held before a batch."""

    def __init__(self, spoilt: Callable[[Tile], bool] = lambda _: False) -> None:
        self.batches: list[list[tuple[int, tuple[int, int]]]] = []
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Event()
        self.spoilt = spoilt

    def __call__(self, tiles: Sequence[Tile]) -> list[Maps]:
        self.entered.set()
        assert self.go.wait(SOON)
        self.batches.append([(int(one[0, 0, 0]), one.shape[:2]) for one in tiles])
        if any(self.spoilt(one) for one in tiles):
            raise RuntimeError("poisoned")
        return [answer(one) for one in tiles]


def batcher(run: RunBatch, metrics: Metrics | None = None, **limits: float) -> Batcher:
    def shape(height: int, width: int) -> tuple[int, int]:
        return height, width

    made = Batcher(run, shape, metrics or Metrics(), **limits)  # type: ignore[arg-type]
    started.append(made)
    return made


def job(batches: Batcher, seconds: float = SOON) -> DeviceJob:
    return batches.open(time.monotonic() + seconds)


def values(one: DeviceJob, tiles: Iterator[Tile], timing: DeviceTiming | None = None) -> list[int]:
    return [int(maps.classes[0][0, 0]) for maps in one.run_tiles(tiles, timing or DeviceTiming())]


def in_thread(function: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Run it beside; what it returns or raises is appended to the list."""
    result: list[object] = []

    def target() -> None:
        try:
            result.append(function())
        except InferenceError as error:
            result.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread, result


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    value = metrics.registry.get_sample_value(name, labels)
    assert value is not None
    return value


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.sampled_from([32, 64, 96]), max_size=12), min_size=1, max_size=5),
    st.integers(1, 4),
)
def test_every_request_gets_its_own_answers_in_order(requests: list[list[int]], max_tiles: int) -> None:
    run = Recorder()
    batches = batcher(run, max_tiles=max_tiles, window_seconds=0.0005)
    threads = []
    for number, sides in enumerate(requests):
        tiles = iter([tile(16 * number + index, side) for index, side in enumerate(sides)])
        threads.append(in_thread(partial(values, job(batches), tiles)))
    for number, ((thread, result), sides) in enumerate(zip(threads, requests, strict=True)):
        thread.join(SOON)
        assert result == [[16 * number + index for index in range(len(sides))]]
    assert all(len(batch) <= max_tiles for batch in run.batches)
    assert all(len({shape for _, shape in batch}) == 1 for batch in run.batches)
    assert batches.stop(SOON)


def test_a_one_tile_request_waits_for_at_most_two_tiles_of_a_large_one() -> None:
    metrics = Metrics()
    run = Recorder()
    run.go.clear()
    batches = batcher(run, metrics)
    large, _ = in_thread(lambda: values(job(batches), (tile(1) for _ in range(40))))
    assert run.entered.wait(SOON)
    small, result = in_thread(lambda: values(job(batches), iter([tile(2)])))
    eventually(lambda: sample(metrics, "uepnet_queue_tiles") == 2)  # one of the large request, one of the small
    run.go.set()
    small.join(SOON)
    large.join(SOON)
    assert result == [[2]]
    order = [batch[0][0] for batch in run.batches]
    assert order.index(2) <= 2
    assert order.count(1) == 40


def test_tiles_are_cut_only_a_little_ahead_of_the_device() -> None:
    run = Recorder()
    run.go.clear()
    batches = batcher(run, max_tiles=2)
    cut = []

    def tiles() -> Iterator[Tile]:
        for index in range(40):
            cut.append(index)
            yield tile(index)

    thread, result = in_thread(lambda: values(job(batches), tiles()))
    eventually(lambda: len(cut) >= 4)
    time.sleep(0.05)  # time enough to cut more
    assert len(cut) == 4
    run.go.set()
    thread.join(SOON)
    assert result == [list(range(40))]


def test_an_idle_device_waits_for_the_tiles_of_other_open_requests() -> None:
    run = Recorder()
    batches = batcher(run, max_tiles=4, window_seconds=SOON)
    second = job(batches)
    first, result = in_thread(lambda: values(job(batches), iter([tile(1)])))
    assert values(second, iter([tile(2)])) == [2]
    first.join(SOON)
    assert result == [[1]]
    assert sorted(value for value, _ in run.batches[0]) == [1, 2]  # one batch


def test_where_batches_cannot_grow_nobody_waits_for_company() -> None:
    batches = batcher(Recorder(), max_tiles=1, window_seconds=1e6)
    with closing(job(batches)):  # open, but sends no tile
        assert values(job(batches), iter([tile(1)])) == [1]


def test_a_lone_request_never_waits_for_company() -> None:
    batches = batcher(Recorder(), max_tiles=8, window_seconds=1e6)
    assert values(job(batches), iter([tile(3)])) == [3]


def test_the_pixel_budget_bounds_a_batch_but_never_to_nothing() -> None:
    run = Recorder()
    batches = batcher(run, max_tiles=8, max_pixels=2 * 64 * 64)
    values(job(batches), iter([tile(1, 64)] * 6))
    assert max(len(batch) for batch in run.batches) == 2
    values(job(batches), iter([tile(1, 256)] * 3))
    assert [len(batch) for batch in run.batches[-3:]] == [1, 1, 1]


def test_a_poisoned_tile_fails_only_its_own_request() -> None:
    metrics = Metrics()
    run = Recorder(spoilt=lambda one: one[0, 0, 0] == 66)
    run.go.clear()
    batches = batcher(run, metrics, max_tiles=4)
    first, _ = in_thread(lambda: values(job(batches), iter([tile(0)])))
    assert run.entered.wait(SOON)
    threads = [in_thread(partial(values, job(batches), iter([tile(value)]))) for value in (1, 66, 3)]
    eventually(lambda: sample(metrics, "uepnet_queue_tiles") == 3)
    run.go.set()
    first.join(SOON)
    for thread, _ in threads:
        thread.join(SOON)
    assert threads[0][1] == [[1]]
    assert threads[2][1] == [[3]]
    assert isinstance(threads[1][1][0], InferenceError)
    assert str(threads[1][1][0]) == "The model failed on this image."
    assert sample(metrics, "uepnet_tiles_total", result="failed") == 1
    assert sample(metrics, "uepnet_tiles_total", result="ok") == 3
    assert batches.alive(SOON)


def test_a_runner_that_loses_answers_is_caught() -> None:
    batches = batcher(lambda tiles: [], max_tiles=2)
    with pytest.raises(InferenceError, match="failed on this image"):
        values(job(batches), iter([tile(1), tile(2)]))
    assert batches.alive(SOON)


def test_a_lost_device_ends_the_thread_and_fails_every_request() -> None:
    def lost(tiles: Sequence[Tile]) -> list[Maps]:
        raise RuntimeError("CUDA error")

    batches = batcher(lost)
    for _ in range(PROBE_AFTER):
        with pytest.raises(InferenceError):
            values(job(batches), iter([tile(1)]))
    eventually(lambda: not batches.alive(SOON))
    with pytest.raises(InferenceError):
        job(batches)


def test_poisoned_images_in_a_row_do_not_end_a_healthy_device() -> None:
    batches = batcher(Recorder(spoilt=lambda one: one[0, 0, 0] == 66))
    for _ in range(3 * PROBE_AFTER):
        with pytest.raises(InferenceError):
            values(job(batches), iter([tile(66)]))
    assert values(job(batches), iter([tile(1)])) == [1]


def test_a_stuck_device_is_not_alive() -> None:
    run = Recorder()
    run.go.clear()
    batches = batcher(run)
    thread, _ = in_thread(lambda: values(job(batches), iter([tile(1)])))
    assert run.entered.wait(SOON)
    assert batches.alive(stall_seconds=SOON)
    eventually(lambda: not batches.alive(stall_seconds=0.01))
    run.go.set()
    thread.join(SOON)
    eventually(lambda: batches.alive(stall_seconds=0.01))


def test_a_deadline_ends_the_wait_while_the_device_is_busy() -> None:
    metrics = Metrics()
    run = Recorder()
    run.go.clear()
    batches = batcher(run, metrics)
    in_thread(lambda: values(job(batches), iter([tile(1)])))
    assert run.entered.wait(SOON)
    with pytest.raises(DeadlineExceeded), closing(job(batches, 0.05)) as late:
        values(late, iter([tile(2)]))
    run.go.set()
    assert values(job(batches), iter([tile(3)])) == [3]
    assert [batch[0][0] for batch in run.batches] == [1, 3]
    assert sample(metrics, "uepnet_tiles_total", result="dropped") == 1
    assert sample(metrics, "uepnet_queue_tiles") == 0


def test_a_cancelled_request_costs_no_more_inference() -> None:
    metrics = Metrics()
    run = Recorder()
    run.go.clear()
    batches = batcher(run, metrics)
    gone = job(batches)
    thread, result = in_thread(lambda: values(gone, (tile(1) for _ in range(40))))
    assert run.entered.wait(SOON)
    gone.cancel(Cancelled("The client has gone."))
    thread.join(SOON)
    assert str(result[0]) == "The client has gone."
    run.go.set()
    assert values(job(batches), iter([tile(2)])) == [2]
    assert [batch[0][0] for batch in run.batches] == [1, 2]
    with pytest.raises(Cancelled):
        gone.check()


def test_an_abandoned_iteration_takes_its_tiles_back() -> None:
    metrics = Metrics()
    run = Recorder()
    batches = batcher(run, metrics)
    one = job(batches)
    stream = one.run_tiles((tile(index) for index in range(40)), DeviceTiming())
    next(stream)
    run.go.clear()
    run.entered.clear()
    stream.close()  # type: ignore[attr-defined]
    assert sample(metrics, "uepnet_queue_tiles") == 0
    run.go.set()


def test_a_retired_batcher_serves_open_jobs_and_ends_with_the_last() -> None:
    batches = batcher(Recorder())
    with closing(job(batches)) as last:
        batches.retire()
        with pytest.raises(InferenceError):
            job(batches)
        assert values(last, iter([tile(1), tile(2)])) == [1, 2]
        assert batches.alive(SOON)
    eventually(lambda: not batches.alive(SOON))


def test_stopping_fails_open_jobs_and_joins_the_thread() -> None:
    run = Recorder()
    run.go.clear()
    batches = batcher(run)
    thread, result = in_thread(lambda: values(job(batches), (tile(1) for _ in range(9))))
    assert run.entered.wait(SOON)
    assert not batches.stop(0.01)
    run.go.set()
    assert batches.stop(SOON)
    thread.join(SOON)
    assert isinstance(result[0], Cancelled)


def test_timings_tell_waiting_from_running() -> None:
    def slow(tiles: Sequence[Tile]) -> list[Maps]:
        time.sleep(0.05)
        return run(tiles)

    metrics = Metrics()
    run = Recorder()
    run.go.clear()
    batches = batcher(slow, metrics)
    ahead, _ = in_thread(lambda: values(job(batches), iter([tile(1)])))
    assert run.entered.wait(SOON)
    timing = DeviceTiming()
    began = time.monotonic()
    behind, result = in_thread(lambda: values(job(batches), iter([tile(2), tile(3)]), timing))
    eventually(lambda: sample(metrics, "uepnet_queue_tiles") == 2)
    run.go.set()
    behind.join(SOON)
    seconds = time.monotonic() - began
    ahead.join(SOON)
    assert result == [[2, 3]]
    assert timing.inference >= 0.1  # two batches that slept
    assert timing.queue > 0
    assert timing.inference + timing.queue <= seconds
