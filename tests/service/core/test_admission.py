"""Admission by expected wait, without HTTP."""

import asyncio

import pytest

from uepnet.service.core.admission import Admission
from uepnet.service.errors import Refused
from uepnet.service.metrics import Metrics
from uepnet.service.settings import Settings


def admission(**settings: object) -> Admission:
    return Admission(Settings(**{"max_requests": 32, "max_wait_seconds": 20, **settings}), Metrics())


def test_until_a_request_has_finished_places_alone_count() -> None:
    one = admission()
    for _ in range(32):
        one.take_places()
    for refused in (one.admit, one.take_places):
        with pytest.raises(Refused, match="limit of concurrent requests"):
            refused()


def test_who_would_wait_too_long_is_refused_with_the_time_to_come_back() -> None:
    one = admission()
    one.take_places()
    one.give_back(1, seconds=4.0)
    for _ in range(6):
        one.take_places()
    with pytest.raises(Refused, match="More requests are waiting") as refused:
        one.admit()
    assert refused.value.retry_after_seconds == 4  # 6 x 4 s are expected, 20 s are allowed
    one.give_back(1, seconds=24.0, beside=6)
    one.admit()


def test_requests_side_by_side_share_the_time() -> None:
    one = admission()
    for _ in range(10):
        one.take_places()
    for _ in range(10):
        one.give_back(1, seconds=10.0, beside=10)  # one a second
    for _ in range(21):
        one.take_places()
    with pytest.raises(Refused, match="More requests are waiting"):
        one.admit()


def test_a_lone_request_is_never_refused_however_slow_the_last_one_was() -> None:
    one = admission()
    one.take_places()
    one.give_back(1, seconds=500.0)
    one.admit()
    assert one.take_places() == 1


def test_a_few_huge_images_do_not_shut_out_small_ones() -> None:
    one = admission()
    for seconds in (0.2, 0.2, 60.0, 0.2, 60.0):
        one.take_places()
        one.give_back(1, seconds=seconds)
    for _ in range(31):
        one.take_places()
    one.admit()  # 31 x 0.2 s are expected


def test_an_admitted_request_is_finished_in_a_drain_also_between_its_steps() -> None:
    async def steps() -> None:
        one = admission()
        one.admit()
        one.give_back(one.take_places())
        one.draining = True
        with pytest.raises(Refused, match="shutting down"):
            one.admit()
        one.give_back(one.take_places())  # its second step
        idle = asyncio.ensure_future(one.wait_until_idle())
        await asyncio.sleep(0)
        assert not idle.done()  # its answer is still to be sent
        one.finish()
        await idle

    asyncio.run(steps())


def test_a_place_is_kept_between_the_steps_of_a_request() -> None:
    one = admission(max_requests=4)
    for _ in range(2):
        one.admit()
        one.give_back(one.take_places())
        one.expect()
    one.admit()
    assert one.take_places(most=8) == 1  # half of the two that are free
    one.admit()
    assert one.take_places(most=8) == 1
    with pytest.raises(Refused, match="limit of concurrent requests"):
        one.admit()
    assert [one.take_places(most=8, expected=True) for _ in range(2)] == [1, 1]
    one.give_back(4)
    one.expect()
    one.expect_no_more()  # it failed
    assert one.take_places(most=8) == 2


def test_bytes_are_reserved_within_the_budget_or_refused() -> None:
    one = admission(max_buffered_bytes=100_000, max_body_bytes=50_000)
    one.reserve_bytes(60_000)
    with pytest.raises(Refused) as refused:
        one.reserve_bytes(50_000)
    assert refused.value.name == "full"
    with pytest.raises(Refused) as refused:
        one.reserve_bytes(100_001)
    assert refused.value.name == "answer-too-large"
    one.count_bytes(-60_000)
    one.reserve_bytes(100_000)
