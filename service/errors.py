"""Failures as RFC 9457 problems: one table from name to status, one sentence for the person who caused it.

Texts are our own, written for strangers: no exception of a library, no path and no address ever reaches a
client. What is not in the tree of `model.errors` is our fault: 500, a fixed text, and the trace in the log.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from uepnet.model import errors
from uepnet.service.schemas import CAMERA_RULE, Problem

MEDIA_TYPE = "application/problem+json"
FAULT = "Something went wrong on our side; the log has the details under this request id."

# name: (status, title)
PROBLEMS: dict[str, tuple[int, str]] = {
    "unauthorised": (401, "A key is needed"),
    "forbidden": (403, "The admin key is needed"),
    "not-found": (404, "There is nothing here"),
    "method-not-allowed": (405, "This method is not allowed here"),
    "not-acceptable": (406, "No answer in an acceptable format"),
    "slow-request": (408, "The request took too long to arrive"),
    "reload-under-way": (409, "Another reload is under way"),
    "model-refused": (409, "The model was refused"),
    "body-too-large": (413, "The body is too large"),
    "image-too-large": (413, "The image has too many pixels"),
    "unsupported-media-type": (415, "This kind of body is not supported"),
    "wrong-request": (422, "The request is wrong"),
    "wrong-image": (422, "The image cannot be read"),
    "wrong-zones": (422, "The zones are wrong"),
    "full": (429, "The service is full"),
    "too-many-cameras": (429, "Too many cameras"),
    "too-many-streams": (429, "Too many event streams"),
    "client-gone": (499, "The client went away"),
    "fault": (500, "Internal error"),
    "not-ready": (503, "The service is not ready"),
    "draining": (503, "The service is shutting down"),
    "deadline": (504, "The deadline has passed"),
}

# The most specific class first.
NAMES: tuple[tuple[type[errors.UepnetError], str], ...] = (
    (errors.ImageTooLarge, "image-too-large"),
    (errors.ImageError, "wrong-image"),
    (errors.ZoneError, "wrong-zones"),
    (errors.InputError, "wrong-request"),
    (errors.ModelError, "model-refused"),
    (errors.Overloaded, "full"),
    (errors.DeadlineExceeded, "deadline"),
    (errors.Cancelled, "client-gone"),
)


class Refused(errors.UepnetError):
    """The service itself refuses: a name of PROBLEMS, and a sentence."""

    def __init__(self, name: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.name = name
        self.headers = dict(headers or {})


def problem(error: Exception, request_id: str) -> Problem:
    """What the client is told of an error."""
    name, detail = _name_and_detail(error)
    status, title = PROBLEMS[name]
    urn = f"urn:uepnet:problem:{name}"
    return Problem(type=urn, title=title, status=status, detail=detail, request_id=request_id)


def _name_and_detail(error: Exception) -> tuple[str, str]:
    if isinstance(error, Refused):
        return error.name, str(error)
    for kind, name in NAMES:
        if isinstance(error, kind):
            return name, str(error)
    if isinstance(error, RequestValidationError):
        return "wrong-request", _complaint(error)
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return "method-not-allowed", "The Allow header says which methods are."
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.NOT_FOUND:
        return "not-found", "The path is unknown; /docs lists those that exist."
    return "fault", FAULT


def _complaint(error: RequestValidationError) -> str:
    first = error.errors()[0]
    where = " ".join(re.sub(r"[^\w.-]", "?", str(part)) for part in first["loc"])
    # The only pattern is that of a camera's name; as a regular expression few could read it.
    what = CAMERA_RULE if first["type"] == "string_pattern_mismatch" else first["msg"]
    return f"{where}: {what}."


def problem_response(error: Exception, request_id: str, path: str) -> Response:
    told = problem(error, request_id)
    content = told.model_dump()
    if path.startswith("/v2/"):
        content["error"] = told.detail  # what clients of the Open Inference Protocol read
    headers = dict(getattr(error, "headers", None) or {})
    if told.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        headers.setdefault("Retry-After", "1")
    return JSONResponse(content, status_code=told.status, headers=headers, media_type=MEDIA_TYPE)


async def handle(request: Request, error: Exception) -> Response:
    """The handler of every expected error."""
    return problem_response(error, request.state.request_id, request.url.path)
