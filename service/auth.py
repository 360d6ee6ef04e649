"""API keys: once one is set, everything needs it but liveness and the page's own files.

The page's files are the same for everyone and hold no data; a browser could not send a key for them. The page
asks for the key when the service first answers 401. Reloading needs the admin key, which also opens all else.
"""

import hashlib
import hmac
from collections.abc import Sequence

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from uepnet.service.metrics import Metrics
from uepnet.service.problems import Refused, problem_response

OPEN_PATHS = frozenset({"/v2/health/live", "/", "/docs"})
OPEN_PREFIX = "/page/"


class KeyGuard:
    """Lets a request pass or answers 401; notes in the request's state whether it came with the admin key."""

    def __init__(
        self, app: ASGIApp, api_keys: Sequence[SecretStr], admin_key: SecretStr | None, metrics: Metrics
    ) -> None:
        self._app = app
        self._keys = [_digest(key.get_secret_value()) for key in api_keys]
        self._admin = None if admin_key is None else _digest(admin_key.get_secret_value())
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = _digest(_key(Headers(scope=scope)))
        # Every key is compared, in constant time: how long it takes tells nothing.
        is_admin = self._admin is not None and hmac.compare_digest(found, self._admin)
        matches = [hmac.compare_digest(found, key) for key in self._keys]
        scope["state"]["admin"] = is_admin
        path: str = scope["path"]
        is_open = not self._keys or path in OPEN_PATHS or path.startswith(OPEN_PREFIX)
        if is_open or is_admin or any(matches):
            await self._app(scope, receive, send)
            return
        self._metrics.reject("unauthorised")
        refused = Refused(
            "unauthorised",
            "Send a valid key as Authorization: Bearer KEY or X-API-Key: KEY.",
            {"WWW-Authenticate": "Bearer"},
        )
        await problem_response(refused, scope["state"]["request_id"], path)(scope, receive, send)


def _key(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
