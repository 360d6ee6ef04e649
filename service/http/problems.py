"""Errors as HTTP answers: RFC 9457 problems, sent as application/problem+json."""

import re
from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from uepnet.model.validation import complaint
from uepnet.service.errors import Refused, named_problem, problem
from uepnet.service.http.context import RequestContext, context_of
from uepnet.service.http.page_routes import missing_page, wants_page
from uepnet.service.schemas import Problem

MEDIA_TYPE = "application/problem+json"


def problem_response(error: Exception, context: RequestContext) -> Response:
    """The answer to a request that failed; its log line tells the reason, too."""
    told = _framework_problem(error, context.request_id) or problem(error, context.request_id)
    context.note_problem(told)
    content = told.model_dump()
    if context.scope["path"].startswith("/v2/"):
        content["error"] = told.detail  # what clients of the Open Inference Protocol read
    return JSONResponse(content, status_code=told.status, headers=_headers(error, told.status), media_type=MEDIA_TYPE)


async def handle(request: Request, error: Exception) -> Response:
    """The handler of every expected error. Somebody with a browser at an unknown address gets a page."""
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.NOT_FOUND and wants_page(request):
        return missing_page()
    return problem_response(error, context_of(request.scope))


def _framework_problem(error: Exception, request_id: str) -> Problem | None:
    """The problem of an error that FastAPI or Starlette raised."""
    if isinstance(error, RequestValidationError):
        return named_problem("wrong-request", _complaint(error), request_id)
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return named_problem("method-not-allowed", "The Allow header lists the methods that are.", request_id)
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.NOT_FOUND:
        return named_problem("not-found", "The path is unknown; /docs lists the paths that exist.", request_id)
    return None


def _headers(error: Exception, status: int) -> dict[str, str]:
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    refused = error if isinstance(error, Refused) else None
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        headers["Retry-After"] = str(refused.retry_after_seconds if refused else 1)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if refused and refused.close:
        headers["Connection"] = "close"
    return headers


def _complaint(error: RequestValidationError) -> str:
    first = error.errors()[0]
    field, text = complaint(first)
    where = re.sub(r"[^\w.-]", "?", field).replace(".", " ")
    return f"{where}: {text}."
