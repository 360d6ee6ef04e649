"""The limit on connections, what is reserved beyond it, and how connections end."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import numpy as np
import pytest
from support.servers import Running, encoded, grey
from support.waiting import SOON, eventually
from uvicorn.protocols.http.h11_impl import H11Protocol

from uepnet.service.http.connections import RESERVED, SLICE_BYTES

Serve = Callable[..., Running]
IMAGE = encoded(grey(64, 64))
MIB = 2**20


@contextmanager
def idle_connections(server: Running, number: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(server)) for _ in range(number)]


def connect(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=SOON)


def request(*headers: str, path: str = "/v1/count") -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: image/png", *headers)
    return "\r\n".join((*lines, "", "")).encode()


def send_all_then_read(server: Running, head: bytes, size: int) -> bytes:
    """The status line, as a client sees it that reads nothing before it has sent everything."""
    with connect(server) as connection:
        connection.sendall(head)
        for _ in range(size // MIB):
            connection.sendall(bytes(MIB))
        return connection.recv(65_536).partition(b"\r\n")[0]


@pytest.fixture
def crowded(serve: Serve) -> Iterator[Running]:
    """A server whose ordinary connections are all taken, by clients that send nothing."""
    server = serve(max_connections=3)
    server.http.close()  # its pool held one
    eventually(lambda: server.server.connections.open == 0)
    with idle_connections(server, 3):
        eventually(lambda: server.server.connections.open == 3)
        yield server


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/metrics"])
def test_health_and_metrics_are_reachable_at_the_limit(crowded: Running, path: str) -> None:
    response = httpx.get(crowded.url + path, timeout=SOON)
    assert response.status_code == 200
    assert response.headers["connection"] == "close"


def test_everything_else_is_429_at_the_limit_and_counted(crowded: Running, caplog: pytest.LogCaptureFixture) -> None:
    response = httpx.post(f"{crowded.url}/v1/count", content=IMAGE, headers={"Content-Type": "image/png"}, timeout=SOON)
    assert response.status_code == 429
    assert response.json()["detail"] == "The service is at its limit of open connections; try again in a moment."
    assert crowded.metric("uepnet_rejected_total", reason="connections") == 1
    assert "connections refused: the limit of 3 open connections is reached" in caplog.text


def test_connections_that_ask_for_nothing_cannot_keep_a_probe_out(crowded: Running) -> None:
    with idle_connections(crowded, RESERVED + 5):
        eventually(lambda: crowded.metric("uepnet_rejected_total", reason="connections") == 5)
        assert httpx.get(f"{crowded.url}/v2/health/live", timeout=SOON).status_code == 200
        assert crowded.server.connections.open <= 3 + RESERVED


def test_requests_are_served_again_below_the_limit(serve: Serve) -> None:
    server = serve(max_connections=3)
    with idle_connections(server, 5):
        eventually(lambda: server.server.connections.open >= 5)
    eventually(lambda: server.server.connections.open <= 1)
    assert server.count(IMAGE).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (("Origin: http://foreign.example", f"Content-Length: {30 * MIB}"), b"403"),
        ((f"Content-Length: {64 * MIB}",), b"413"),
        (("Transfer-Encoding: chunked", "Content-Length: 5"), b"400"),
        (("Broken header", f"Content-Length: {30 * MIB}"), b"400"),
    ],
)
def test_a_client_that_still_sends_gets_its_refusal(service: Running, headers: tuple[str, ...], status: bytes) -> None:
    assert send_all_then_read(service, request(*headers), 30 * MIB).split()[1] == status


def test_a_wrong_key_is_answered_to_a_client_that_still_sends(serve: Serve) -> None:
    server = serve(api_keys="one-long-key", ready=False)
    assert send_all_then_read(server, request(f"Content-Length: {30 * MIB}"), 30 * MIB).split()[1] == b"401"


def test_a_client_that_sends_on_forever_after_its_answer_is_cut_off(serve: Serve) -> None:
    server = serve(receive_seconds=0.5)
    with connect(server) as connection, pytest.raises(OSError):
        connection.sendall(request("Origin: http://foreign.example", "Content-Length: 1000000"))
        until = time.monotonic() + SOON
        while time.monotonic() < until:
            connection.sendall(b"x")
            time.sleep(0.02)


def test_a_finished_request_closes_at_once(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uepnet.service.http.connections.LINGER_SECONDS", 3600.0)  # a lingering one would stay
    open_before = service.server.connections.open
    with connect(service) as connection:
        connection.sendall(request("Connection: close", f"Content-Length: {len(IMAGE)}") + IMAGE)
        while connection.recv(65_536):
            pass
        eventually(lambda: service.server.connections.open <= open_before)


def chunked(content: bytes, size: int) -> bytes:
    pieces = (content[at : at + size] for at in range(0, len(content), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def test_a_body_of_tiny_chunks_is_refused(service: Running) -> None:
    with connect(service) as connection:
        connection.sendall(request("Transfer-Encoding: chunked") + b"1\r\na\r\n" * 16_000)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    assert answer.split()[1] == b"422"
    assert b"The chunks of the body are too small" in answer


@pytest.mark.parametrize("size", [200, 5000, 10**6])
def test_a_body_may_come_in_chunks(service: Running, size: int) -> None:
    image = encoded(np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8))
    with connect(service) as connection:
        connection.sendall(request("Transfer-Encoding: chunked") + chunked(image, size))
        assert connection.recv(65_536).split()[1] == b"200"


def test_what_comes_at_once_is_parsed_in_slices(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    parse = H11Protocol.data_received

    def noting(protocol: H11Protocol, data: bytes) -> None:
        sizes.append(len(data))
        parse(protocol, data)

    monkeypatch.setattr(H11Protocol, "data_received", noting)
    image = encoded(np.random.default_rng(0).integers(0, 255, (400, 400, 3), dtype=np.uint8))
    first = request(f"Content-Length: {len(image)}") + image
    many_headers = request(*["a: b"] * 2000, "Content-Length: 0")
    with connect(service) as connection:
        connection.sendall(first + many_headers)
        answers = b""
        while answers.count(b"HTTP/1.1 ") < 2:
            answers += connection.recv(65_536)
    assert [part.split()[0] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"422"]
    assert sum(sizes) == len(first + many_headers)
    assert len(sizes) - sizes.count(SLICE_BYTES) < 20  # the body comes as the kernel has it
    assert sum(size for size in sizes if size > SLICE_BYTES) <= len(image)


def test_a_client_that_leaves_in_the_middle_of_an_answer_is_no_news(
    service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    image = encoded(grey(3000, 3000))
    gone = service.metric("uepnet_buffered_bytes")
    for _ in range(3):
        with connect(service) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # resets when it closes
            query = "/v1/count?map=density"
            head = request("Accept: application/x-npy", f"Content-Length: {len(image)}", path=query)
            connection.sendall(head + image)
            connection.recv(100)
    eventually(lambda: service.metric("uepnet_buffered_bytes") <= gone)
    eventually(lambda: service.metric("uepnet_requests_in_flight") == 0)
    assert "socket.send() raised exception" not in caplog.text
