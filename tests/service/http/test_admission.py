"""What protects the service: limits on bytes, pixels, places and time, on a real port."""

import json
import socket
import threading
import time
from collections.abc import Callable

import httpx
import numpy as np
import pytest
from support.servers import SOON, HeldRuntime, Running, encoded, eventually, grey

IMAGE = encoded(grey(64, 64))
Serve = Callable[..., Running]


def raw(server: Running, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SOON)
    connection.sendall(content)
    return connection


def head(length: int, path: str = "/v1/count") -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: image/png", f"Content-Length: {length}")
    return "\r\n".join((*lines, "", "")).encode()


def answer(connection: socket.socket) -> tuple[int, dict[str, object]]:
    response = b""
    while b"\r\n\r\n" not in response:
        response += connection.recv(65536)
    start, _, body = response.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in start.decode().lower().split("\r\n")[1:])
    while len(body) < int(fields["content-length"]):
        body += connection.recv(65536)
    return int(start.split()[1]), json.loads(body)


def in_background(function: Callable[[], httpx.Response]) -> tuple[threading.Thread, list[httpx.Response]]:
    results: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    return thread, results


def post(server: Running, content: bytes = IMAGE) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/count", content=content, headers={"Content-Type": "image/png"}, timeout=SOON)


def test_a_body_that_announces_too_much_is_refused_before_it_is_sent(serve: Serve) -> None:
    server = serve(max_body_bytes=4096)
    with raw(server, head(4097)) as connection:
        status, problem = answer(connection)
    assert status == 413
    assert problem["type"] == "urn:uepnet:problem:body-too-large"
    assert "4096" in str(problem["detail"])
    assert server.metric("uepnet_rejected_total", reason="too_large") == 1


@pytest.mark.parametrize("length", ["9" * 18, "9" * 5000, "-1", "1e3"])
def test_an_absurd_length_is_refused(service: Running, length: str) -> None:
    with raw(service, head(0).replace(b"Length: 0", b"Length: " + length.encode())) as connection:
        status = int(connection.recv(65536).split()[1])
    assert status in (400, 413)


def test_a_body_that_announces_nothing_is_counted_as_it_arrives(serve: Serve) -> None:
    server = serve(max_body_bytes=4096)
    chunks = iter([b"x" * 1024] * 1000)  # httpx sends them without a Content-Length
    response = server.http.post("/v1/count", content=chunks, headers={"Content-Type": "image/png"})
    assert response.status_code == 413
    assert server.metric("uepnet_buffered_bytes") == 0


def test_the_connection_serves_on_after_a_refused_body(serve: Serve) -> None:
    server = serve(max_body_bytes=4096)
    with raw(server, head(200_000)) as connection:
        assert answer(connection)[0] == 413
        connection.sendall(b"x" * 200_000)
        connection.sendall(head(len(IMAGE)) + IMAGE)
        assert answer(connection)[0] == 200


def test_an_image_with_too_many_pixels_is_refused(serve: Serve) -> None:
    server = serve(max_pixels=10_000)
    assert server.count(encoded(grey(100, 100))).status_code == 200
    response = server.count(encoded(grey(101, 100)))
    assert response.status_code == 413
    assert response.json()["type"] == "urn:uepnet:problem:image-too-large"
    assert server.metric("uepnet_rejected_total", reason="too_many_pixels") == 1


def test_a_slow_sender_is_cut_off_and_holds_no_place_meanwhile(serve: Serve) -> None:
    server = serve(receive_seconds=0.5, max_requests=1)
    with raw(server, head(1000) + b"x") as connection:
        eventually(lambda: server.metric("uepnet_buffered_bytes") == 1)
        assert server.count(IMAGE).status_code == 200
        status, problem = answer(connection)
        assert status == 408
        assert problem["type"] == "urn:uepnet:problem:slow-request"
        assert connection.recv(1) == b""
    eventually(lambda: server.metric("uepnet_buffered_bytes") == 0)


def test_a_connection_that_never_sends_a_request_is_closed(serve: Serve) -> None:
    server = serve(receive_seconds=0.2)
    for beginning in (b"", b"POST /v1/count HTTP/1.1\r\nHost:"):
        with raw(server, beginning) as connection, pytest.raises(ConnectionResetError):
            if connection.recv(1) == b"":
                raise ConnectionResetError


def test_a_body_that_trickles_on_after_its_answer_is_cut_off(serve: Serve) -> None:
    server = serve(receive_seconds=0.3, max_body_bytes=4096)
    with raw(server, head(200_000)) as connection:
        assert answer(connection)[0] == 413
        with pytest.raises(OSError):
            for _ in range(200):
                connection.sendall(b"x")
                time.sleep(0.02)


def test_a_full_house_answers_429_at_once_and_recovers(serve: Serve, held: HeldRuntime) -> None:
    server = serve(held, max_requests=2)
    held.go.clear()
    inside = [in_background(lambda: post(server)) for _ in range(2)]
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 2)
    with raw(server, head(10_000_000)) as connection:  # no byte of its body is awaited
        status, problem = answer(connection)
    assert status == 429
    assert problem["type"] == "urn:uepnet:problem:full"
    assert server.count(IMAGE).headers["retry-after"] == "1"
    assert server.metric("uepnet_rejected_total", reason="full") == 2
    held.go.set()
    for thread, results in inside:
        thread.join(SOON)
        assert results[0].status_code == 200
    assert server.count(IMAGE).status_code == 200


def test_bytes_under_way_are_bounded(serve: Serve) -> None:
    server = serve(max_body_bytes=100_000, max_buffered_bytes=150_000)
    with raw(server, head(100_000) + b"x" * 90_000):
        eventually(lambda: server.metric("uepnet_buffered_bytes") == 90_000)
        response = server.count(b"x" * 90_000)
        assert response.status_code == 429
        assert server.metric("uepnet_rejected_total", reason="memory") == 1
        assert server.count(IMAGE).status_code == 200
    eventually(lambda: server.metric("uepnet_buffered_bytes") == 0)
    assert server.count(b"x" * 90_000).status_code == 422


def test_a_deadline_is_answered_in_time_and_its_place_freed_with_its_thread(serve: Serve, held: HeldRuntime) -> None:
    server = serve(held, deadline_seconds=0.3)
    held.go.clear()
    began = time.monotonic()
    response = server.count(IMAGE)
    assert response.status_code == 504
    assert response.json()["type"] == "urn:uepnet:problem:deadline"
    assert 0.3 <= time.monotonic() - began < SOON
    held.go.set()
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 0)
    eventually(lambda: server.count(IMAGE).status_code == 200)


def test_a_client_that_left_costs_no_more_inference(serve: Serve, held: HeldRuntime) -> None:
    server = serve(held)
    large = encoded(grey(2048, 2048))  # 100 tiles
    held.go.clear()
    connection = raw(server, head(len(large)) + large)
    eventually(lambda: held.tiles == 1)
    connection.close()
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 0)
    held.go.set()
    assert server.count(IMAGE).status_code == 200
    assert held.tiles == 2
    assert server.metric("uepnet_queue_tiles") == 0
    assert server.metric("uepnet_requests_total", route="/v1/count", outcome="cancelled") == 1


def test_a_client_that_left_while_waiting_is_never_run(serve: Serve, held: HeldRuntime) -> None:
    server = serve(held)
    held.go.clear()
    first, results = in_background(lambda: post(server))
    eventually(lambda: held.tiles == 1)
    connection = raw(server, head(len(IMAGE)) + IMAGE)
    eventually(lambda: server.metric("uepnet_queue_tiles") == 1)
    connection.close()
    eventually(lambda: server.metric("uepnet_queue_tiles") == 0)
    held.go.set()
    first.join(SOON)
    assert results[0].status_code == 200
    assert held.tiles == 1


def test_a_poisoned_image_is_our_fault_and_says_nothing_of_the_inside(serve: Serve, held: HeldRuntime) -> None:
    server = serve(held)
    held.spoil = RuntimeError("secret address 0x7ffd")
    response = server.count(IMAGE)
    assert response.status_code == 500
    assert response.json()["type"] == "urn:uepnet:problem:fault"
    assert "secret" not in response.text
    assert response.json()["request_id"]
    held.spoil = None
    assert server.count(IMAGE).status_code == 200


def test_a_lost_device_fails_liveness_and_readiness(serve: Serve, held: HeldRuntime) -> None:
    server = serve(held)
    assert server.http.get("/v2/health/live").status_code == 200
    held.spoil = RuntimeError("CUDA error")
    for _ in range(3):
        assert server.count(IMAGE).status_code == 500
    eventually(lambda: server.http.get("/v2/health/live").status_code == 503)
    assert server.http.get("/v2/health/ready").status_code == 503
    assert server.metric("uepnet_rejected_total", reason="not_ready") == 0  # a probe is nobody who was turned away
    assert server.count(IMAGE).status_code == 503
    assert server.metric("uepnet_rejected_total", reason="not_ready") == 1


def test_a_device_that_refuses_costs_no_place(serve: Serve, held: HeldRuntime) -> None:
    server = serve(held)
    held.go.clear()
    thread, _ = in_background(lambda: post(server))
    eventually(lambda: held.tiles == 1)
    assert server.state.model.loaded is not None
    server.state.model.loaded.batcher.retire()  # as between the device's failure and the end of its thread
    assert server.count(IMAGE).status_code == 500
    held.go.set()
    thread.join(SOON)
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 0)


def test_a_reader_that_stops_reading_is_cut_off(serve: Serve) -> None:
    server = serve(send_seconds=0.3)
    image = encoded(np.random.default_rng(0).integers(0, 255, (2000, 2000, 3), dtype=np.uint8))
    request = head(len(image)).replace(b"\r\n\r\n", b"\r\nAccept: image/png\r\n\r\n")
    with raw(server, request + image) as connection:
        eventually(lambda: server.metric("uepnet_buffered_bytes") >= 12 * 2**20)
        eventually(lambda: server.metric("uepnet_buffered_bytes") == 0)
        with pytest.raises(ConnectionResetError):
            while connection.recv(2**20):
                pass
            raise ConnectionResetError


def test_a_compressed_body_is_not_supported(service: Running) -> None:
    response = service.count(IMAGE, headers={"Content-Encoding": "gzip"})
    assert response.status_code == 415


def test_a_body_of_ambiguous_length_is_refused_and_the_connection_closed(service: Running) -> None:
    request = head(len(IMAGE)).replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    smuggled = b"0\r\n\r\nGET /v1/model HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with raw(service, request + smuggled) as connection:
        status, problem = answer(connection)
        assert (status, problem["type"]) == (400, "urn:uepnet:problem:wrong-framing")
        assert connection.recv(65536) == b""  # the second request is not answered
