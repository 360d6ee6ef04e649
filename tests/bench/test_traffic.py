import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st

from uepnet.bench.traffic import Tally, arriving, closed, percentile


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_least_latency_that_reaches_the_share(latencies: list[float], level: int) -> None:
    ordered = sorted(latencies)
    found = percentile(ordered, level)
    assert found in ordered
    assert sum(value <= found for value in ordered) * 100 >= level * len(ordered)
    assert sum(value < found for value in ordered) * 100 < level * len(ordered)


def test_a_percentile_of_nothing_is_none() -> None:
    assert percentile([], 50) is None


def test_senders_of_a_closed_loop_wait_for_their_answers() -> None:
    under_way = most = 0

    async def send() -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return 200

    row = asyncio.run(closed(send, 3, 0.3)).row()
    assert most == 3
    assert row["ok"] > 3
    assert row["latency_ms"]["p50"] >= 10


def test_arrivals_do_not_wait_and_those_past_the_bound_are_dropped() -> None:
    under_way = most = 0

    async def send() -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.2)
        under_way -= 1
        return 200

    row = asyncio.run(arriving(send, rate=200, seconds=0.5, max_in_flight=4)).row()
    assert most == 4
    assert row["dropped"] > 50
    assert row["ok"] + row["dropped"] > 70


def test_a_stall_shows_in_the_latency_of_all_that_were_due_meanwhile() -> None:
    calls = 0

    async def send() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            time.sleep(0.3)  # stops the sender's whole loop, as a swamped client would be
        return 200

    row = asyncio.run(arriving(send, rate=100, seconds=0.5, max_in_flight=100)).row()
    assert row["latency_ms"]["p90"] > 150  # the stalled request alone would show in the maximum only


def test_refusals_and_failures_are_told_apart_and_have_no_latency() -> None:
    tally = Tally("open", 1.0, seconds=2.0)
    for status, latency in ((200, 0.1), (200, 0.3), (429, 0.001), (503, 0.001), (500, 0.001), (0, 9.0)):
        tally.note(status, latency)
    row = tally.row()
    assert (row["ok"], row["rejected"], row["failed"]) == (2, 2, 2)
    assert row["per_second"] == 1.0
    assert row["latency_ms"] == {"p50": 100.0, "p90": 300.0, "p95": 300.0, "p99": 300.0, "max": 300.0}
    assert row["statuses"] == {"0": 1, "200": 2, "429": 1, "500": 1, "503": 1}
