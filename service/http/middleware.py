"""The outermost layer: the RequestContext, safe headers, a log line and the metrics of each request; 500s end here."""

import asyncio
import logging
import random
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uepnet.service.errors import Refused
from uepnet.service.http.connections import RESERVED_PATHS, GuardedConnection, connection_of
from uepnet.service.http.context import SCOPE_KEY, AppState, RequestContext
from uepnet.service.http.problems import problem_response
from uepnet.service.metrics import RequestOutcome

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
audit = logging.getLogger("uepnet.audit")  # what was done with the admin key


class RequestMiddleware:
    """Thread: runs on the event loop."""

    def __init__(self, app: ASGIApp, state: AppState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent_id = Headers(scope=scope).get("x-request-id", "")
        request_id = sent_id if REQUEST_ID.fullmatch(sent_id) else f"{random.getrandbits(128):032x}"
        connection = connection_of(scope)
        if connection is not None:
            receive = _noting_the_body(receive, connection)
        context = RequestContext(self._state, scope, receive, request_id, started=time.monotonic())
        scope[SCOPE_KEY] = context
        response = _ResponseSender(send, context)
        if connection is not None:
            connection.request_started(_content_length(context.headers))
            response.closes = connection.is_reserved
        try:
            if connection is not None and connection.is_reserved and scope["path"] not in RESERVED_PATHS:
                connection.limits.note_refused()
                detail = "The service is at its limit of open connections; try again in a moment."
                raise Refused("full", detail, close=True)
            if "content-length" in context.headers and "transfer-encoding" in context.headers:
                # RFC 9112, 6.1: a proxy in front may take the other one, and see the rest as a request of its own.
                detail = "Send either Content-Length or Transfer-Encoding, not both."
                raise Refused("wrong-framing", detail, close=True)
            await self._app(scope, receive, response)
        except Refused as refused:
            await problem_response(refused, context)(scope, receive, response)
        except asyncio.CancelledError:  # the server's patience has ended
            self._state.cut_off += context.admitted
            raise
        except SlowReader:
            response.status = 499
            context.log_fields["reason"] = "The client took the answer too slowly."
            if connection is not None:
                connection.abort()
        except Exception as error:
            log.exception("request %s failed", request_id)
            if response.status == 0:
                await problem_response(error, context)(scope, receive, response)
            else:
                response.status = 500
        finally:
            if connection is not None:
                connection.request_ended()
                if connection.aborted:  # the answer did not arrive
                    response.status = 499
            context.end()
            self._record(context, response)

    def _record(self, context: RequestContext, response: "_ResponseSender") -> None:
        scope, seconds = context.scope, time.monotonic() - context.started
        route = getattr(scope.get("route"), "path", "other")
        status = response.status or 499
        self._state.metrics.requests.labels(route, _outcome(status)).inc()
        if route != "/v1/events":  # the length of a stream says nothing about speed
            self._state.metrics.request_seconds.labels(route).observe(seconds)
        fields = {
            "request_id": context.request_id,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "client": context.client or None,
            **({"key": context.key} if context.key else {}),
            "bytes_in": context.bytes_in,
            "bytes_out": response.bytes_out,
            "total_ms": round(1000 * seconds, 1),
            **context.log_fields,
        }
        level = logging.DEBUG if route in ("/metrics", "/v2/health/live", "/v2/health/ready") else logging.INFO
        log.log(level, "request", extra={"fields": fields})
        if context.is_admin and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            audit.info("admin action", extra={"fields": fields})


def _content_length(headers: Headers) -> int | None:
    """The length of a request's body; None where it is chunked."""
    return None if "transfer-encoding" in headers else int(headers.get("content-length", "0"))


def _noting_the_body(receive: Receive, connection: GuardedConnection) -> Receive:
    """The ASGI `receive`; tells the connection how much of the body has arrived, and refuses chunks that are tiny."""

    async def receiving() -> Message:
        message = await receive()
        if message["type"] == "http.request" and not connection.body_received(
            len(message.get("body", b"")), message.get("more_body", False)
        ):
            raise Refused("wrong-request", "The chunks of the body are too small: send more in each.", close=True)
        return message

    return receiving


class SlowReader(Exception):
    """The client takes its answer too slowly; its connection has been cut."""


class _ResponseSender:
    """The ASGI `send` with our headers added.

    Large bodies go out in pieces, and must be taken within send_seconds and a second for each min_send_rate bytes: an
    answer is part of the memory budget until its client has taken it.
    """

    def __init__(self, send: Send, context: RequestContext) -> None:
        self._send = send
        self._context = context
        self._until: float | None = None  # on the loop's clock; None for a stream without an end
        self.status = 0
        self.bytes_out = 0
        self.closes = False  # whether the connection ends with this answer

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start(message)
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        body = memoryview(message.get("body", b""))
        more = message.get("more_body", False)
        self.bytes_out += len(body)
        unreserved = max(0, len(body) - self._context.reserved_bytes)
        self._context.app.admission.count_bytes(unreserved)
        try:
            async with asyncio.timeout_at(self._until):
                while len(body) > CHUNK_BYTES:
                    await self._send({**message, "body": bytes(body[:CHUNK_BYTES]), "more_body": True})
                    body = body[CHUNK_BYTES:]
                await self._send({**message, "body": bytes(body), "more_body": more})
        except TimeoutError:
            raise SlowReader from None
        finally:
            self._context.app.admission.count_bytes(-unreserved)

    def _start(self, message: Message) -> None:
        self.status = message["status"]
        headers = MutableHeaders(scope=message)
        headers["X-Request-Id"] = self._context.request_id
        for name, value in SAFE_HEADERS.items():
            headers.setdefault(name, value)
        if self.closes:
            headers["Connection"] = "close"
        length, settings = headers.get("content-length"), self._context.app.settings
        if length is not None:
            seconds = settings.send_seconds + int(length) / int(settings.min_send_rate)
            self._until = asyncio.get_running_loop().time() + seconds


def _outcome(status: int) -> RequestOutcome:
    if status < 400:
        return "ok"
    special: dict[int, RequestOutcome] = {
        408: "rejected",
        429: "rejected",
        499: "cancelled",
        503: "rejected",
        504: "expired",
    }
    return special.get(status, "failed" if status >= 500 else "invalid")
