"""Small requests that would cost much: refused, or bounded, while others go on being served."""

import base64
import io
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.bombs import arithmetic_scans, many_scans
from support.memory import resident_mib
from support.servers import HeldRuntime, Process, Running, encoded, grey
from support.waiting import SOON, eventually

from uepnet.model.decode import density_map
from uepnet.service.core.counting import Counting

IMAGE = encoded(grey(64, 64))
Serve = Callable[..., Running]
INFER = "/v2/models/uepnet/infer"


def head(content: bytes, query: str = "", kind: str = "image/png", accept: str = "*/*") -> bytes:
    lines = (f"POST /v1/count{query} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", f"Accept: {accept}")
    return "\r\n".join((*lines, f"Content-Length: {len(content)}", "", "")).encode() + content


def oip(images: list[bytes], **fields: object) -> bytes:
    data = [base64.b64encode(image).decode() for image in images]
    tensor = {"name": "images", "shape": [len(images)], "datatype": "BYTES", "data": data}
    return json.dumps({"inputs": [tensor], **fields}).encode()


def test_jpegs_whose_senders_leave_hold_no_decoder(serve: Serve) -> None:
    server = serve(decode_threads=2)
    bomb = many_scans(7000, 7000, 64)
    for _ in range(4):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head(bomb, kind="image/jpeg"))
            eventually(lambda: server.metric("uepnet_requests_in_flight") > 0)
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 0)  # without waiting for the decoders
    assert server.count(IMAGE).status_code == 200


def test_a_jpeg_of_a_thousand_scans_is_refused(service: Running) -> None:
    response = service.count(many_scans(7000, 7000, 1000), "image/jpeg")
    assert response.status_code == 413
    assert response.json()["detail"] == "The JPEG image has more than 64 scans."


def test_an_image_that_takes_too_long_to_decode_is_413(serve: Serve) -> None:
    server = serve(decode_seconds=0.1)  # it takes 4 s; the kernel counts whole ones
    response = server.count(arithmetic_scans(7000, 7000, 64), "image/jpeg")
    assert response.status_code == 413
    assert response.json()["type"] == "urn:uepnet:problem:image-too-large"
    assert server.metric("uepnet_rejected_total", reason="too_many_pixels") == 1


@pytest.mark.parametrize("size", [(1, 1_500_000), (600_000, 1)])
def test_thin_images_are_413(service: Running, size: tuple[int, int]) -> None:
    content = io.BytesIO()
    Image.new("L", size).save(content, "PNG")
    for headers in ({}, {"Accept": "image/png"}):
        response = service.count(content.getvalue(), headers=headers)
        assert response.status_code == 413
        assert "each side may have at most 32768" in response.json()["detail"]


def test_padded_count_maps_are_bounded(serve: Serve) -> None:
    server = serve(max_buffered_bytes="40MiB", max_body_bytes="1MiB")
    images = [encoded(np.zeros((8, 16_000, 3), np.uint8)), encoded(np.zeros((16_000, 8, 3), np.uint8))]
    response = server.http.post(INFER, content=oip(images), headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert response.json()["type"] == "urn:uepnet:problem:answer-too-large"
    content = oip(images, outputs=[{"name": "count"}])
    answer = server.http.post(INFER, content=content, headers={"Content-Type": "application/json"})
    assert [output["name"] for output in answer.raise_for_status().json()["outputs"]] == ["count"]
    eventually(lambda: server.metric("uepnet_buffered_bytes") == 0)


@pytest.mark.parametrize("content", [b"[]," * 2_000_000, b'{"a":' * 100_000, b"[" * 1_000_000, b"1" * 2_000_000])
def test_json_that_is_all_structure_is_refused_at_once(service: Running, content: bytes) -> None:
    body = b'{"parameters": {"x": [' + content + b'1]}, "inputs": []}'
    response = service.http.post(INFER, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert len(response.content) < 1000


def test_a_reload_takes_no_large_body(serve: Serve) -> None:
    server = serve(admin_key="the-admin-key")
    response = server.http.post("/v1/model/reload", content=b"[" * 100_000, headers={"X-API-Key": "the-admin-key"})
    assert response.status_code == 413


def test_parsing_a_form_takes_a_place(serve: Serve) -> None:
    """64 combs of 256 points: a second of work, which must not come before admission."""
    server = serve(max_requests=1)
    comb = [[x, 0.1 if x % 2 else 0.9] for x in range(128)] + [
        [x, 0.05 if x % 2 else 0.85] for x in reversed(range(128))
    ]
    zones = {"zones": [{"name": str(number), "polygon": comb} for number in range(64)]}
    began = time.monotonic()
    response = server.http.post("/v1/count", files={"image": ("x.png", IMAGE), "zones": (None, json.dumps(zones))})
    assert response.status_code in (200, 422)
    assert time.monotonic() - began < SOON


def test_zones_of_endless_outline_are_refused(service: Running) -> None:
    content = io.BytesIO()
    Image.new("L", (32_000, 64)).save(content, "PNG")
    teeth = 128
    comb = [[0 if n % 2 else 32_000, n / 4] for n in range(teeth)] + [
        [0 if n % 2 else 32_000, n / 4 + 0.1] for n in reversed(range(teeth))
    ]
    zones = {"zones": [{"name": str(number), "polygon": comb} for number in range(64)]}
    files = {"image": ("x.png", content.getvalue()), "zones": (None, json.dumps(zones))}
    response = service.http.post("/v1/count", files=files)
    assert response.status_code == 422
    assert response.json()["type"] == "urn:uepnet:problem:wrong-zones"


def test_a_density_map_is_sent_in_pieces_and_is_the_same(service: Running) -> None:
    image = grey(203, 117, 0)
    image[20:60, 30:180] = 200
    content = encoded(image)
    headers = {"Accept": "application/x-npy"}
    whole = np.load(io.BytesIO(service.count(content, headers=headers, params={"map": "density"}).content))
    counts = np.load(io.BytesIO(service.count(content, headers=headers).content))
    assert np.array_equal(whole, density_map(counts, 203, 117, 8))


def test_slow_readers_of_large_answers_hold_no_memory_for_long(serve: Serve) -> None:
    server = serve(send_seconds=3, min_send_rate="64MiB")
    image = encoded(np.random.default_rng(0).integers(0, 255, (2600, 2600, 3), dtype=np.uint8))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # what the kernel holds is sent
        connection.settimeout(SOON)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head(image, accept="image/png"))
        connection.recv(4096)
        began = time.monotonic()
        while server.metric("uepnet_buffered_bytes") > 0:  # takes a little now and then, and so never stalls for long
            assert time.monotonic() - began < SOON
            connection.recv(262_144)
            time.sleep(0.3)
    eventually(lambda: server.metric("uepnet_buffered_bytes") == 0)
    sample = server.state.metrics.registry.get_sample_value
    labels = {"route": "/v1/count", "outcome": "cancelled"}
    eventually(lambda: sample("uepnet_requests_total", labels) == 1)


def test_memory_goes_back_after_large_overlays(process: Callable[..., Process]) -> None:
    server = process()
    server.http.post("/v1/count", content=IMAGE, headers={"Content-Type": "image/png"}).raise_for_status()
    large = encoded(grey(4000, 4000))
    before = resident_mib(server.popen.pid)
    for _ in range(2):
        headers = {"Content-Type": "image/png", "Accept": "image/png"}
        server.http.post("/v1/count", content=large, headers=headers).raise_for_status()
    eventually(lambda: resident_mib(server.popen.pid) < before + 300)


@pytest.mark.parametrize(("params", "accept"), [({"include": "map"}, "*/*"), ({}, "application/x-npy")])
def test_memory_for_a_count_map_is_reserved_before_it_is_made(
    serve: Serve, params: dict[str, str], accept: str
) -> None:
    server = serve(max_body_bytes=20_000, max_buffered_bytes=20_000)
    content = io.BytesIO()
    Image.new("1", (400, 400)).save(content, "PNG")  # 2,500 cells
    headers = {"Accept": accept}
    response = server.count(content.getvalue(), headers=headers, params=params)
    assert response.status_code == 413
    assert response.json()["type"] == "urn:uepnet:problem:answer-too-large"
    assert server.count(content.getvalue()).status_code == 200
    eventually(lambda: server.metric("uepnet_buffered_bytes") == 0)


def test_a_raw_tensor_of_countless_items_is_refused_at_once(service: Running) -> None:
    for number in (1, 10**6):
        text = json.dumps({"inputs": [{"name": "images", "shape": [number], "datatype": "BYTES"}]}).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))}
        response = service.http.post(INFER, content=text + bytes(20_000_000), headers=headers)
        assert response.status_code == 422
        assert "At most 32" in response.text or "do not fit" in response.text


def test_images_of_a_batch_together_have_no_more_pixels_than_one_may_have(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(max_pixels=1_000_000)
    now, most, lock = 0, 0, threading.Lock()
    count_bytes = Counting.count_bytes

    def noting(counting: Counting, content: bytes, *rest: Any, **more: Any) -> Any:
        nonlocal now, most
        pixels = 900_000 if content == large else 90_000
        with lock:
            now += pixels
            most = max(most, now)
        result = count_bytes(counting, content, *rest, **more)
        with lock:
            now -= pixels
        return result

    monkeypatch.setattr(Counting, "count_bytes", noting)
    large, small = encoded(grey(1000, 900)), encoded(grey(300, 300))
    parts = [("image", ("x.png", image)) for image in [large, small, b"no image"] * 4]
    results = server.http.post("/v1/count/batch", files=parts).raise_for_status().json()["results"]
    assert [result["answer"] is not None for result in results] == [True, True, False] * 4
    assert most <= 1_000_000


def test_a_batch_tells_no_more_of_the_wait_than_another_request(serve: Serve, held: HeldRuntime) -> None:
    """It holds half of the places; the next small image waits for none of them."""
    server = serve(held, max_requests=8, max_wait_seconds=1.9)
    for _ in range(3):
        server.count(IMAGE).raise_for_status()
    parts = [("image", ("x.png", IMAGE))] * 4
    for seconds in (2.0, 0.0):
        held.go.clear()
        with ThreadPoolExecutor(2) as pool:
            batch = pool.submit(server.http.post, "/v1/count/batch", files=parts)
            eventually(lambda: server.metric("uepnet_requests_in_flight") == 4)
            time.sleep(seconds)
            single = pool.submit(server.count, IMAGE)
            held.go.set()
            assert batch.result().status_code == 200
            assert single.result().status_code == 200
