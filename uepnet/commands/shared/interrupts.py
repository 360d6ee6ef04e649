"""Ctrl-C, SIGTERM and a closed terminal as a request: the work under way ends at its next good moment."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """A list that gets an item when the process is asked to stop. The handlers of before are restored at the end."""
    asked: list[int] = []
    with on_stop(lambda *_: asked.append(1)):
        yield asked


@contextmanager
def on_stop(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call the handler when the process is asked to stop; a signal that is ignored, as under nohup, stays ignored."""
    heeded = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
