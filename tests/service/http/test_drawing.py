"""Drawing pictures ends when nobody waits for them any more."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.servers import SOON, Running, encoded, eventually, grey

IMAGE = encoded(grey(64, 64))


@pytest.mark.parametrize(("name", "view"), [("overlay", "overlay"), ("heat_map", "heat")])
def test_a_thread_that_draws_ends_with_its_request(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, name: str, view: str
) -> None:
    drawing = threading.Event()

    def endless(*_: object, check: Callable[[], None], **__: Any) -> NDArray[np.uint8]:
        drawing.set()
        until = time.monotonic() + SOON
        while time.monotonic() < until:
            check()
            time.sleep(0.01)
        raise AssertionError("it was never told to end")

    monkeypatch.setattr(f"uepnet.service.http.responses.{name}", endless)
    server = serve(decode_threads=1)
    lines = (f"POST /v1/count?view={view} HTTP/1.1", "Host: localhost", "Content-Type: image/png", "Accept: image/png")
    request = "\r\n".join((*lines, f"Content-Length: {len(IMAGE)}", "", "")).encode() + IMAGE
    with socket.create_connection(("127.0.0.1", server.port), timeout=SOON) as connection:
        connection.sendall(request)
        assert drawing.wait(SOON)
        assert server.metric("uepnet_requests_in_flight") == 1
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 0)  # the client has left
    eventually(lambda: server.metric("uepnet_buffered_bytes") == 0)
    assert server.count(IMAGE).status_code == 200  # the slot is free
