"""API keys: once one is set, every path needs a key except liveness and the files of the web page.

The files of the page are the same for everyone and hold no data; a browser could not send a key for them. The page
asks for the key when the service first answers 401. The admin key opens everything.
"""

import asyncio
import hashlib
import hmac
from collections import OrderedDict

from starlette.types import ASGIApp, Receive, Scope, Send

from uepnet.service.errors import Refused
from uepnet.service.http.context import AppState, RequestContext, context_of
from uepnet.service.http.origins import check_forgery
from uepnet.service.http.problems import problem_response

OPEN_PATHS = frozenset({"/v2/health/live", "/", "/docs", "/alerts", "/photographs"})
OPEN_PREFIXES = ("/page/", "/cameras/")
LONGEST_WAIT_SECONDS = 2.0
MAX_ADDRESSES = 1024
MAX_WAITING = 64


class KeyGuard:
    """Lets a request pass or answers 401 or 403; notes in the context which key it came with.

    Thread: runs on the event loop.
    """

    def __init__(self, app: ASGIApp, state: AppState) -> None:
        self._app = app
        self._settings = settings = state.settings
        self._metrics = state.metrics
        self._keys = [_digest(key.get_secret_value()) for key in settings.api_keys]
        self._admin = None if settings.admin_key is None else _digest(settings.admin_key.get_secret_value())
        self._failures = FailedKeys()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = context_of(scope)
        try:
            await self._check(context)
        except Refused as refused:
            await problem_response(refused, context)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _check(self, context: RequestContext) -> None:
        path, headers = context.scope["path"], context.headers
        sent = _sent_key(headers.get("authorization", ""), headers.get("x-api-key", ""))
        context.key = self._key_name(_digest(sent))
        if context.key:
            return
        client = context.client
        if sent and (self._keys or self._admin):
            await self._failures.slow_down(client)
        if not self._keys:
            try:
                check_forgery(self._settings, context.scope["method"], path, headers)
            except Refused:
                self._metrics.reject("forged")
                raise
        elif path not in OPEN_PATHS and not path.startswith(OPEN_PREFIXES):
            self._metrics.reject("unauthorised")
            raise Refused("unauthorised", "Send a valid key as Authorization: Bearer KEY or X-API-Key: KEY.")

    def _key_name(self, found: bytes) -> str:
        """`admin`, `api-1`, `api-2`..., or empty for no valid key."""
        # Every key is compared, in constant time: the time it takes tells nothing about the keys.
        matches = [hmac.compare_digest(found, key) for key in self._keys]
        if self._admin is not None and hmac.compare_digest(found, self._admin):
            return "admin"
        return f"api-{matches.index(True) + 1}" if any(matches) else ""


class FailedKeys:
    """Slows down guessing: the more wrong keys an address has sent, the longer its next one waits.

    Bounded: the addresses are the last MAX_ADDRESSES, and at most MAX_WAITING requests wait; the others are answered at
    once, so that guessing cannot pile up requests. Thread: runs on the event loop.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, int] = OrderedDict()
        self._waiting = 0

    async def slow_down(self, client: str) -> None:
        failures = self._failures.pop(client, 0) + 1
        self._failures[client] = failures
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
        if self._waiting >= MAX_WAITING:
            return
        self._waiting += 1
        try:
            await asyncio.sleep(min(LONGEST_WAIT_SECONDS, 0.05 * 2 ** min(failures, 10)))
        finally:
            self._waiting -= 1


def _sent_key(authorization: str, api_key: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else api_key


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
