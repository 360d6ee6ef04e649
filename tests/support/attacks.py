"""Small requests that try to stop or bloat a service. Each is bounded, and returns the statuses that it saw."""

import base64
import io
import json
import random
import socket
import time
from collections.abc import Callable
from functools import cache

import httpx
from PIL import Image

from support.bombs import arithmetic_scans, many_scans

COUNT, INFER = "/v1/count", "/v2/models/uepnet/infer"
JSON = {"Content-Type": "application/json"}
CLOSED = 0  # in place of a status: the connection ended without an answer
Attack = Callable[[str, random.Random], list[int]]


@cache
def blank(width: int, height: int, kind: str = "PNG", mode: str = "1") -> bytes:
    """A picture of few bytes, however large it is."""
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, kind)
    return file.getvalue()


@cache
def slow_jpeg(side: int, scans: int) -> bytes:
    return many_scans(side, side, scans)


@cache
def slower_jpeg(side: int, scans: int) -> bytes:
    return arithmetic_scans(side, side, scans)


@cache
def animation(side: int, kind: str) -> bytes:
    """Frames of one colour each."""
    file = io.BytesIO()
    frames = [Image.new("RGBA", (side, side), colour) for colour in ("red", "blue")]
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    return file.getvalue()


def ask(url: str, path: str, content: bytes, **options: object) -> list[int]:
    try:
        return [httpx.post(url + path, content=content, timeout=120, **options).status_code]  # type: ignore[arg-type]
    except httpx.TransportError:
        return [CLOSED]


def raw(url: str, content: bytes, wait: float = 1.0) -> list[int]:
    """Send bytes as they are; the status of the first answer, if one comes in time."""
    address = httpx.URL(url)
    try:
        with socket.create_connection((address.host, address.port or 80), timeout=wait) as connection:
            connection.sendall(content)
            answer = connection.recv(4096).split()
            return [int(answer[1])] if len(answer) > 1 else [CLOSED]
    except OSError:
        return [CLOSED]


def head(*headers: str, path: str = COUNT) -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def huge_pictures(url: str, rng: random.Random) -> list[int]:
    width = rng.choice((1, 7000, 32_768, 60_000))
    height = rng.choice((1, 1500, 7000))
    headers = {"Content-Type": "image/png", "Accept": rng.choice(("image/png", "application/json"))}
    return ask(url, COUNT, blank(width, height), headers=headers)


def animations(url: str, rng: random.Random) -> list[int]:
    """A WebP of 150 bytes: libwebp keeps two frames, and hands over a third."""
    headers = {"Content-Type": "image/webp", "Accept": rng.choice(("image/png", "application/json"))}
    return ask(url, COUNT, animation(rng.choice((1000, 7000)), rng.choice(("WEBP", "GIF"))), headers=headers)


def crowded_batches(url: str, rng: random.Random) -> list[int]:
    image = rng.choice((blank(7000, 7000), animation(7000, "WEBP"), slow_jpeg(7000, 64)[:8000]))
    parts = [("image", ("x", image))] * min(32, 95_000 // len(image))
    try:
        return [httpx.post(f"{url}{COUNT}/batch", files=parts, timeout=120).status_code]
    except httpx.TransportError:
        return [CLOSED]


def slow_decoding(url: str, rng: random.Random) -> list[int]:
    content = rng.choice((slow_jpeg, slower_jpeg))(rng.choice((2000, 7000)), rng.choice((64, 500)))
    return ask(url, COUNT, content, headers={"Content-Type": "image/jpeg"})


def senders_that_leave(url: str, rng: random.Random) -> list[int]:
    content = rng.choice((slow_jpeg, slower_jpeg))(rng.choice((2000, 7000)), 64)
    request = head("Content-Type: image/jpeg", f"Content-Length: {len(content)}") + content
    return raw(url, request[: rng.randrange(1, len(request) + 1)], wait=0.05)


def padded_tensors(url: str, rng: random.Random) -> list[int]:
    images = [blank(rng.randrange(8, 20_000), 8), blank(8, rng.randrange(8, 20_000))]
    data = [base64.b64encode(image).decode() for image in images]
    tensor = {"name": "images", "shape": [2], "datatype": "BYTES", "data": data}
    return ask(url, INFER, json.dumps({"inputs": [tensor]}).encode(), headers=JSON)


def structured_json(url: str, rng: random.Random) -> list[int]:
    content = rng.choice((b"[],", b'{"a":', b"[", b'"\\u0041",', b"1e9,")) * 15_000
    return ask(url, INFER, b'{"parameters": {"x": [' + content + b"1]}}", headers=JSON)


def countless_tensors(url: str, rng: random.Random) -> list[int]:
    number = rng.choice((1, 24_000, 10**9))
    text = json.dumps({"inputs": [{"name": "images", "shape": [number], "datatype": "BYTES"}]}).encode()
    return ask(url, INFER, text + bytes(96_000), headers={"Inference-Header-Content-Length": str(len(text))})


def endless_zones(url: str, rng: random.Random) -> list[int]:
    comb = [[x, 0.1 if x % 2 else 0.9] for x in range(60)] + [[x, 0.05 if x % 2 else 0.85] for x in range(59, -1, -1)]
    zones = json.dumps({"zones": [{"name": str(number), "polygon": comb} for number in range(30)]})
    size = rng.choice(((64, 64), (20_000, 64)))
    try:
        files = {"image": ("x.png", blank(*size)), "zones": (None, zones)}
        return [httpx.post(url + COUNT, files=files, timeout=120).status_code]
    except httpx.TransportError:
        return [CLOSED]


def broken_forms(url: str, rng: random.Random) -> list[int]:
    part = b'--b\r\nContent-Disposition: form-data; name="image"\r\n\r\n'
    content = part + rng.choice((b"\r\n", b"\r", b"\r\n--", b"\r\n--b\r\nA: b\r\n\r\n")) * 10_000
    return ask(url, COUNT, content, headers={"Content-Type": "multipart/form-data; boundary=b"})


def broken_http(url: str, rng: random.Random) -> list[int]:
    requests = (
        b"\x00" * 1000,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000,
        head("Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        head("Content-Length: -1"),
        head("Transfer-Encoding: chunked") + b"fffffffffff\r\n",
        head("Origin: http://foreign.example", "Content-Length: 1000000") + bytes(50_000),
        head("Content-Length: 99999999"),
        head("Transfer-Encoding: chunked") + b"1\r\na\r\n" * 16_000,
        head("Origin: http://[", "Content-Length: 0"),
        head(*["a:b"] * 15_000),
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000,
    )
    return raw(url, rng.choice(requests))


def idle_connections(url: str, rng: random.Random) -> list[int]:
    address, opened = httpx.URL(url), []
    try:
        for _ in range(rng.randrange(50, 200)):
            opened.append(socket.create_connection((address.host, address.port or 80), timeout=5))
        time.sleep(0.5)
    except OSError:
        return [CLOSED]
    finally:
        for connection in opened:
            connection.close()
    return []


def readers_that_stop(url: str, rng: random.Random) -> list[int]:
    content = blank(*rng.choice(((2000, 2000), (5000, 5000))))
    request = head("Content-Type: image/png", "Accept: application/x-npy", f"Content-Length: {len(content)}")
    return raw(url, request.replace(COUNT.encode(), COUNT.encode() + b"?map=density") + content, wait=5)


ATTACKS: tuple[Attack, ...] = (
    huge_pictures,
    animations,
    crowded_batches,
    slow_decoding,
    senders_that_leave,
    padded_tensors,
    structured_json,
    countless_tensors,
    endless_zones,
    broken_forms,
    broken_http,
    idle_connections,
    readers_that_stop,
)
