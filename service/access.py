"""The outermost layer: a request id, safe headers, one log line and the metrics of each request; 500s end here."""

import logging
import random
import re
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uepnet.service.admission import House
from uepnet.service.metrics import Metrics, Outcome
from uepnet.service.problems import problem_response

CHUNK_BYTES = 256 * 1024
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

log = logging.getLogger("uepnet.access")


class Access:
    def __init__(self, app: ASGIApp, metrics: Metrics, house: House) -> None:
        self._app = app
        self._metrics = metrics
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        state: dict[str, Any] = scope.setdefault("state", {})
        sent_id = Headers(scope=scope).get("x-request-id", "")
        state["request_id"] = sent_id if REQUEST_ID.fullmatch(sent_id) else f"{random.getrandbits(128):032x}"
        state["started"] = started
        answer = _Answer(send, state["request_id"], self._house)
        try:
            await self._app(scope, receive, answer)
        except Exception as error:
            log.exception("request %s failed", state["request_id"])
            if answer.status == 0:
                await problem_response(error, state["request_id"], scope["path"])(scope, receive, answer)
            else:
                answer.status = 500
        finally:
            self._note(scope, answer, time.monotonic() - started)

    def _note(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        status = answer.status or 499
        self._metrics.requests.labels(route, _outcome(status)).inc()
        if route != "/v1/events":  # a stream's length says nothing about speed
            self._metrics.request_seconds.labels(route).observe(seconds)
        state = scope["state"]
        fields = {
            "request_id": state["request_id"],
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "client": scope["client"][0] if scope.get("client") else None,
            "bytes_in": state.get("bytes_in", 0),
            "bytes_out": answer.bytes_out,
            "total_ms": round(1000 * seconds, 1),
            **state.get("log", {}),
        }
        level = logging.DEBUG if route in ("/metrics", "/v2/health/live", "/v2/health/ready") else logging.INFO
        log.log(level, "request", extra={"fields": fields})


class _Answer:
    """`send`, with our headers added; large bodies go out in pieces, so that a slow reader is noticed."""

    def __init__(self, send: Send, request_id: str, house: House) -> None:
        self._send = send
        self._request_id = request_id
        self._house = house
        self.status = 0
        self.bytes_out = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._request_id
            for name, value in SAFE_HEADERS.items():
                headers.setdefault(name, value)
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        body = memoryview(message.get("body", b""))
        more = message.get("more_body", False)
        self.bytes_out += len(body)
        with self._house.holding(len(body)):
            while len(body) > CHUNK_BYTES:
                await self._send({**message, "body": bytes(body[:CHUNK_BYTES]), "more_body": True})
                body = body[CHUNK_BYTES:]
            await self._send({**message, "body": bytes(body), "more_body": more})


def _outcome(status: int) -> Outcome:
    if status < 400:
        return "ok"
    special: dict[int, Outcome] = {
        408: "rejected",
        429: "rejected",
        499: "cancelled",
        503: "rejected",
        504: "expired",
    }
    return special.get(status, "failed" if status >= 500 else "invalid")
