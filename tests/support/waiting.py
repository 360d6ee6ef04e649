"""Waiting for what happens in another thread or process."""

import time
from collections.abc import Callable

SOON = 60.0  # seconds; far more than anything takes, also on a busy machine


def eventually(condition: Callable[[], object], seconds: float = SOON) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.005)
