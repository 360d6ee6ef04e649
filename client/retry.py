"""Shared by both clients: the address of the server, and retrying for a limited time.

While the server is busy (429), not ready (503) or unreachable, a call is repeated after the time in Retry-After or
after growing pauses, until the patience ends; counting twice is harmless. A server that has never answered is not
waited for, because its address is probably wrong.
"""

import logging
import os
import random
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx

from uepnet import __version__
from uepnet.client import requests
from uepnet.client.requests import Call
from uepnet.model.errors import InputError, Unreachable

T = TypeVar("T")
log = logging.getLogger(__name__)

Outcome = httpx.Response | httpx.TransportError

TRY_AGAIN = frozenset((429, 502, 503, 504))
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.1, 5.0


class Server:
    """What both clients know of the server: where it is, whether it has answered yet, whether it is away."""

    def __init__(self, url: str, api_key: str | None, timeout_seconds: float, patience_seconds: float) -> None:
        if not isinstance(url, str):
            raise InputError(f"A server's address is a text such as http://localhost:8000, not {type(url).__name__}.")
        try:
            parsed = httpx.URL(url if "://" in url else f"http://{url}")
        except httpx.InvalidURL:
            parsed = httpx.URL()
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise InputError(f"A server's address looks like http://localhost:8000, not {url!r}.")
        self.url = parsed
        self.name = str(parsed.copy_with(userinfo=b""))  # fit to be shown
        self.patience_seconds = patience_seconds
        self.met = False
        self.away = False
        key = api_key or os.environ.get("UEPNET_API_KEY")
        self.headers = {"User-Agent": f"uepnet/{__version__}"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.timeout = httpx.Timeout(timeout_seconds, connect=min(10.0, timeout_seconds))

    def note(self, outcome: Outcome) -> None:
        """Log once when the server goes away, and once when it is back."""
        away = isinstance(outcome, httpx.TransportError) or outcome.status_code in (502, 503)
        if away and self.met and not self.away:
            log.warning("%s does not answer; trying again for %g s.", self.name, self.patience_seconds)
        elif self.away and not away:
            log.warning("%s answers again.", self.name)
        self.away = away
        self.met = self.met or isinstance(outcome, httpx.Response)

    def answer(self, call: Call[T], outcome: Outcome) -> T:
        if isinstance(outcome, httpx.TransportError):
            detail = str(outcome) or type(outcome).__name__
            raise Unreachable(f"No service answers at {self.name} ({detail}).") from outcome
        if outcome.status_code >= 300:
            raise requests.failure(outcome)
        return call.read(outcome)


class Patience:
    """The time for which one call is repeated."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._until: float | None = None
        self._pause = FIRST_PAUSE_SECONDS

    def pause(self, outcome: Outcome) -> float | None:
        """Seconds until the next attempt; None if the outcome is final."""
        met = self._server.met
        self._server.note(outcome)
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in TRY_AGAIN:
                return None
            asked = _retry_after(outcome)
        elif not met:
            return None
        else:
            asked = 0.0
        now = time.monotonic()
        self._until = now + self._server.patience_seconds if self._until is None else self._until
        left = self._until - now
        own = self._pause * random.uniform(0.5, 1.0)  # not all clients at the same moment
        self._pause = min(2 * self._pause, LAST_PAUSE_SECONDS)
        return None if left <= 0 or asked > left else max(asked, min(own, left))


def _retry_after(answer: httpx.Response) -> float:
    """Seconds that the server asks for: a number or a date; 0 where it does not say."""
    text = answer.headers.get("Retry-After", "")
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
