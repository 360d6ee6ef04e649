"""Answers that all who ask at the same time share."""

import asyncio

import pytest

from uepnet.service.shared_answer import SharedAnswer


def test_those_who_ask_meanwhile_share_the_next_answer() -> None:
    async def run() -> None:
        made, go = 0, asyncio.Event()

        async def make() -> int:
            nonlocal made
            made += 1
            number = made
            await go.wait()
            return number

        shared = SharedAnswer(make)
        first = [asyncio.ensure_future(shared.get()) for _ in range(3)]
        await asyncio.sleep(0.01)
        later = [asyncio.ensure_future(shared.get()) for _ in range(100)]
        await asyncio.sleep(0.01)
        later[0].cancel()  # a client that leaves takes the answer from nobody
        go.set()
        assert await asyncio.gather(*first) == [1, 1, 1]
        assert await asyncio.gather(*later[1:]) == [2] * 99
        assert await shared.get() == 3

    asyncio.run(run())


def test_a_failure_is_told_to_all_and_ends_with_them() -> None:
    async def run() -> None:
        async def make() -> int:
            if shared_fails:
                raise ValueError("broken")
            return 1

        shared = SharedAnswer(make)
        shared_fails = True
        answers = await asyncio.gather(shared.get(), shared.get(), return_exceptions=True)
        assert [type(answer) for answer in answers] == [ValueError, ValueError]
        shared_fails = False
        assert await shared.get() == 1

    asyncio.run(run())


def test_nothing_is_made_before_somebody_asks() -> None:
    async def make() -> int:
        pytest.fail("nobody asked")

    SharedAnswer(make)
