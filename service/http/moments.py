"""Times in requests: ISO 8601 with a time zone, as `?time=2026-05-01T12:00:00Z`."""

import time
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator

AHEAD_SECONDS = 60.0  # how far a camera's clock may be ahead of ours


def moment(text: str) -> str:
    """Checked here, so that a wrong one is answered with 422 like any other parameter."""
    seconds(text)
    return text


def seconds(text: str) -> float:
    """Seconds since 1970."""
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise ValueError("a time looks like 2026-05-01T12:00:00Z; a + in it must be sent as %2B")
    return parsed.timestamp()


def capture_time(text: str) -> str:
    if seconds(text) > time.time() + AHEAD_SECONDS:
        raise ValueError("the time lies in the future; set the clocks of camera and server")
    return moment(text)


Moment = Annotated[str, AfterValidator(moment)]
CaptureTime = Annotated[str, AfterValidator(capture_time)]
