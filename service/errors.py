"""Failures and their HTTP status: one table from the name of a problem to its status and title.

Texts are one sentence for the person who caused the failure. No exception text of a library, no server path and no
memory address reaches a client. What is not in the tree of `model.errors` is our fault: status 500 with a fixed
text, and the traceback in the log.
"""

from uepnet.model import errors
from uepnet.service.schemas import Problem

FAULT = "Something went wrong on our side; the log has the details under this request id."

# name: (status, title)
PROBLEMS: dict[str, tuple[int, str]] = {
    "wrong-framing": (400, "The length of the body is ambiguous"),
    "unauthorised": (401, "A key is needed"),
    "forbidden": (403, "The admin key is needed"),
    "wrong-host": (403, "The Host header is not allowed"),
    "foreign-origin": (403, "The origin is not allowed"),
    "not-found": (404, "There is nothing here"),
    "method-not-allowed": (405, "This method is not allowed here"),
    "not-acceptable": (406, "No answer in an acceptable format"),
    "slow-request": (408, "The request took too long to arrive"),
    "reload-under-way": (409, "Another reload is under way"),
    "history-off": (409, "The history is off"),
    "model-refused": (409, "The model was refused"),
    "body-too-large": (413, "The body is too large"),
    "answer-too-large": (413, "The answer is too large"),
    "image-too-large": (413, "The image is too large"),
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
    """The service itself refuses: the name of a problem in PROBLEMS, and a sentence."""

    def __init__(self, name: str, detail: str, retry_after_seconds: int = 1, close: bool = False) -> None:
        super().__init__(detail)
        self.name = name
        self.retry_after_seconds = retry_after_seconds  # told to the client with status 429 and 503
        self.close = close  # whether the connection ends with the answer


def problem(error: Exception, request_id: str) -> Problem:
    """What the client is told about an error."""
    if isinstance(error, Refused):
        return named_problem(error.name, str(error), request_id)
    for kind, name in NAMES:
        if isinstance(error, kind):
            return named_problem(name, str(error), request_id)
    return named_problem("fault", FAULT, request_id)


def named_problem(name: str, detail: str, request_id: str) -> Problem:
    status, title = PROBLEMS[name]
    return Problem(type=f"urn:uepnet:problem:{name}", title=title, status=status, detail=detail, request_id=request_id)
