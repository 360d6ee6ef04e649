"""Slots for work that keeps a core busy: who gets the next one."""

import threading
import time
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

    def __init__(self, slots: Slots, mine: DeviceJob, order: list[str], name: str) -> None:
        self.go = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(slots, mine, order, name))
        self.thread.start()

    def _run(self, slots: Slots, mine: DeviceJob, order: list[str], name: str) -> None:
        with suppress(Cancelled), slots.taken(mine):
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
