"""Log lines: one a request, plain or JSON, safe against what clients send."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.servers import HeldRuntime, Running, encoded, eventually, grey

from uepnet.service.logs import JsonFormatter, PlainFormatter

Serve = Callable[..., Running]


def record(message: str, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("uepnet.access", logging.INFO, "file", 1, message, (), None)
    made.fields = fields
    return made


def test_a_plain_line_shows_fields_as_words() -> None:
    line = PlainFormatter().format(record("request", status=200, path="/v1/count"))
    assert line.endswith("INFO    request status=200 path=/v1/count")


@pytest.mark.parametrize("path", ["/a b=c", '/"', "/\n2026 ERROR forged", "/\x1b[31m"])
def test_a_path_cannot_forge_a_line_or_a_field(path: str) -> None:
    line = PlainFormatter().format(record("request", path=path))
    assert "\n" not in line
    assert "\x1b" not in line
    assert f"path={json.dumps(path)}" in line


def test_a_json_line_is_json_even_with_a_trace() -> None:
    made = record("request", status=500)
    try:
        raise RuntimeError("broken\nthing")
    except RuntimeError as error:
        made.exc_info = (RuntimeError, error, error.__traceback__)
    line = JsonFormatter().format(made)
    assert "\n" not in line
    fields = json.loads(line)
    assert (fields["level"], fields["message"], fields["status"]) == ("info", "request", 500)
    assert "RuntimeError: broken" in fields["trace"]


def test_each_request_is_one_line_with_id_status_sizes_and_timings(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    image = encoded(grey(64, 48))
    with caplog.at_level(logging.INFO, logger="uepnet.access"):
        response = server.count(image, params={"camera": "west"})
        server.http.get("/v2/health/live")
        eventually(lambda: caplog.records)
    (line,) = [one for one in caplog.records if one.name == "uepnet.access"]
    fields = line.fields  # type: ignore[attr-defined]
    assert fields["request_id"] == response.headers["x-request-id"]
    assert (fields["method"], fields["path"], fields["status"]) == ("POST", "/v1/count", 200)
    assert (fields["bytes_in"], fields["bytes_out"]) == (len(image), len(response.content))
    assert (fields["width"], fields["height"], fields["camera"]) == (64, 48, "west")
    assert fields["total_ms"] >= fields["decode_ms"] + fields["inference_ms"]


def test_a_fault_is_logged_with_its_trace_and_request_id(
    serve: Serve, held: HeldRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(held)
    held.spoil = RuntimeError("the cause")
    response = server.count(encoded(grey(64, 64)))
    assert response.status_code == 500
    traced = [one for one in caplog.records if one.exc_info]
    assert any(response.headers["x-request-id"] in one.getMessage() for one in traced)
    assert "the cause" in caplog.text
