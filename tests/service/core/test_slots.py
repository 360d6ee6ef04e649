"""Slots for work that keeps a core busy: who gets the next one."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from support.waiting import SOON, eventually

from uepnet.model.errors import Cancelled, DeadlineExceeded
from uepnet.service.core.slots import Slots
from uepnet.service.core.tile_queue import DeviceJob, TileQueue
from uepnet.service.metrics import Metrics


@pytest.fixture
def queue() -> TileQueue:
    return TileQueue(lambda height, width: (height, width), Metrics(), 1, 1_000_000, 0.0)


def job(queue: TileQueue, seconds: float = SOON) -> DeviceJob:
    return queue.open(time.monotonic() + seconds, "request")


class Work:
    """A thread that takes a slot, notes its name and keeps the slot until it is told to go."""

    def __init__(
        self, slots: Slots, mine: DeviceJob, order: list[str], name: str, expected: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.go = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(slots, mine, order, name, expected))
        self.thread.start()

    def _run(self, slots: Slots, mine: DeviceJob, order: list[str], name: str, expected: Callable[[], float]) -> None:
        with suppress(Cancelled), slots.taken(mine, expected):
            order.append(name)
            assert self.go.wait(SOON)


def test_a_request_of_many_images_delays_another_by_one_image(queue: TileQueue) -> None:
    slots, many, single, order = Slots(2), job(queue), job(queue), list[str]()
    works = []
    for number in range(6):
        works.append(Work(slots, many, order, f"many {number}"))
        eventually(lambda number=number: len(order) + slots.waiting == number + 1)
    works.append(Work(slots, single, order, "single"))
    eventually(lambda: slots.waiting == 5)
    works[0].go.set()
    eventually(lambda: len(order) == 3)
    assert order == ["many 0", "many 1", "single"]
    for work in works:
        work.go.set()
        work.thread.join(SOON)
    assert sorted(order[3:]) == ["many 2", "many 3", "many 4", "many 5"]


def test_of_equals_the_one_that_has_waited_longest_is_next(queue: TileQueue) -> None:
    slots, order, works = Slots(1), list[str](), []
    for number in range(5):
        works.append(Work(slots, job(queue), order, str(number)))
        eventually(lambda number=number: len(order) + slots.waiting == number + 1)
    for work in works:
        work.go.set()
        work.thread.join(SOON)
    assert order == ["0", "1", "2", "3", "4"]


def test_a_job_that_ends_waits_no_longer_and_loses_no_slot(queue: TileQueue) -> None:
    slots, order = Slots(1), list[str]()
    holder, left = Work(slots, job(queue), order, "holder"), job(queue)
    eventually(lambda: order == ["holder"])
    waiting = Work(slots, left, order, "left")
    eventually(lambda: slots.waiting == 1)
    left.cancel(Cancelled("The client closed the connection."))
    waiting.thread.join(SOON)
    with pytest.raises(DeadlineExceeded), slots.taken(job(queue, 0.1)):
        pass
    assert slots.waiting == 0
    holder.go.set()
    holder.thread.join(SOON)
    with slots.taken(job(queue)):
        pass
    assert order == ["holder"]


def in_turn(slots: Slots, queue: TileQueue, costs: dict[str, Callable[[], float]]) -> tuple[list[str], list[Work]]:
    """Works of these expected seconds, each begun when the one before has a slot or waits."""
    order, works = list[str](), list[Work]()
    for number, (name, expected) in enumerate(costs.items(), 1):
        works.append(Work(slots, job(queue), order, name, expected))
        eventually(lambda number=number: len(order) + slots.waiting == number)
    return order, works


def finish(works: list[Work]) -> None:
    for work in works:
        work.go.set()
    for work in works:
        work.thread.join(SOON)


def test_cheap_work_goes_ahead_of_what_takes_longer(queue: TileQueue) -> None:
    costs = {"first": 0.0, "dear": 900.0, "dearer": 950.0, "cheap": 0.1}
    order, works = in_turn(Slots(1), queue, {name: lambda cost=cost: cost for name, cost in costs.items()})
    for number, name in enumerate(("first", "cheap", "dear", "dearer"), 1):
        eventually(lambda number=number: len(order) == number)
        assert order[-1] == name
        works[list(costs).index(name)].go.set()
    finish(works)


def test_waiting_counts_for_dear_work(queue: TileQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each second that it takes longer it lets others go ahead for PATIENCE seconds, not for ever."""
    monkeypatch.setattr("uepnet.service.core.slots.PATIENCE", 0)
    order, works = in_turn(Slots(1), queue, {"first": lambda: 0.0, "dear": lambda: 900.0, "cheap": lambda: 0.0})
    works[0].go.set()
    eventually(lambda: len(order) == 2)
    assert order[1] == "dear"
    finish(works)


def test_long_work_leaves_one_slot_free(queue: TileQueue) -> None:
    slots = Slots(3)
    order, works = in_turn(slots, queue, {f"long {number}": lambda: 2.0 for number in range(4)})
    assert slots.waiting == 2
    with slots.taken(job(queue)):  # at once
        pass
    finish(works)
    assert len(order) == 4


def test_work_that_turns_out_to_be_long_falls_behind(queue: TileQueue) -> None:
    """Estimates are corrected while it waits."""
    seconds = 0.0
    order, works = in_turn(Slots(1), queue, {"first": lambda: 0.0, "liar": lambda: seconds, "honest": lambda: 0.5})
    seconds = 100.0
    works[0].go.set()
    eventually(lambda: len(order) == 2)
    assert order[1] == "honest"
    finish(works)


def test_the_wait_is_that_for_other_requests_that_come_before(queue: TileQueue) -> None:
    slots, waits = Slots(2), list[float]()

    def note(seconds: float) -> None:
        waits.append(seconds)
        raise Cancelled("enough")

    def wait(seconds: float, mine: DeviceJob) -> float:
        with suppress(Cancelled), slots.taken(mine, lambda: seconds, note):
            pass
        return waits[-1]

    assert wait(100.0, job(queue)) == 0
    order, works = in_turn(slots, queue, {f"long {number}": lambda: 7.0 for number in range(3)})
    assert wait(8.0, job(queue)) == 21  # all of them, in the one slot that is not kept for short work
    assert wait(0.5, job(queue)) == 0
    assert slots.waiting == 2  # who was refused left nothing behind
    finish(works)
    assert len(order) == 3
