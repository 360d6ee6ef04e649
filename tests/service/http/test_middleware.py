"""The outermost layer, with an app of the test's own inside it."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from uepnet.service.http.context import AppState, context_of
from uepnet.service.http.middleware import RequestMiddleware
from uepnet.service.settings import Settings

SCOPE = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1)}


@pytest.mark.parametrize(("admitted", "cut_off"), [(True, 1), (False, 0)])
def test_an_answer_that_the_end_of_the_server_cuts_off_is_counted(admitted: bool, cut_off: int) -> None:
    async def cut() -> AppState:
        state = AppState(Settings(history="off"))

        async def endless(scope: Scope, receive: Receive, send: Send) -> None:
            if admitted:
                state.admission.admit()
                context_of(scope).admitted = True
            await asyncio.sleep(3600)

        async def nothing() -> Message:
            return {"type": "http.disconnect"}

        async def drop(message: Message) -> None:
            raise AssertionError

        task = asyncio.ensure_future(RequestMiddleware(endless, state)(dict(SCOPE), nothing, drop))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(state.admission.wait_until_idle(), 1)
        return state

    assert asyncio.run(cut()).cut_off == cut_off
