"""POST /v1/count and /v1/count/batch on a real port."""

import io
import json
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from support.servers import SOON, Running, encoded, grey
from support.toy import toy_model

from uepnet.model.artifact import Layout
from uepnet.model.count import count_image
from uepnet.model.image import load_image
from uepnet.model.runtime import Runtime
from uepnet.model.zones import Zone, load_zones
from uepnet.service.schemas import BatchAnswer, CountAnswer

Serve = Callable[..., Running]
GATE = {"zones": [{"name": "gate", "units": "fractions", "polygon": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}]}


@pytest.fixture(scope="module")
def photo() -> bytes:
    """Light on the left, dark on the right, larger than one tile."""
    array = grey(600, 400, 0)
    array[:, :300] = np.random.default_rng(1).integers(100, 255, (400, 300, 3))
    return encoded(array, "JPEG")


def test_a_raw_body_is_counted_as_in_process(service: Running, photo: bytes, model_dir: Path) -> None:
    answer = CountAnswer.model_validate_json(service.count(photo, "image/jpeg").raise_for_status().content)
    runtime = Runtime(model_dir)
    expected = count_image(load_image(photo), runtime.artifact, runtime.run_tiles)
    assert answer.count == expected.count > 0
    assert answer.range is not None and expected.range is not None
    assert (answer.range.low, answer.range.high, answer.range.level) == (expected.range.low, expected.range.high, 0.9)
    assert (answer.width, answer.height) == (600, 400)
    assert answer.model.name == "toy"
    assert answer.timings_ms.total >= answer.timings_ms.decode + answer.timings_ms.inference
    assert answer.map is None


def test_a_form_with_zones_counts_each_zone(service: Running, photo: bytes) -> None:
    files = {"image": ("x.jpg", photo), "zones": (None, json.dumps(GATE))}
    answer = CountAnswer.model_validate_json(service.http.post("/v1/count", files=files).raise_for_status().content)
    (zone,) = answer.zones
    assert zone.name == "gate"
    assert 0.9 * answer.count < zone.count <= answer.count


def test_the_count_map_comes_with_the_json_on_request(service: Running, photo: bytes) -> None:
    answer = CountAnswer.model_validate_json(service.count(photo, params={"include": "map"}).content)
    assert answer.map is not None
    counts = answer.map.array()
    assert counts.shape == (50, 75)
    assert counts.sum(dtype=np.float64) == answer.count


def test_by_accept_the_answer_is_a_picture(service: Running, photo: bytes) -> None:
    json_count = service.count(photo).json()["count"]
    overlay = service.count(photo, headers={"Accept": "image/png"})
    heat = service.count(photo, headers={"Accept": "image/png"}, params={"view": "heat"})
    for response in (overlay, heat):
        assert response.headers["content-type"] == "image/png"
        assert float(response.headers["x-count"]) == json_count
        assert Image.open(io.BytesIO(response.content)).width == 600
    assert Image.open(io.BytesIO(heat.content)).size == (600, 400)
    assert overlay.content != heat.content


def test_pictures_and_maps_follow_the_cell_of_the_model(serve: Serve, tmp_path: Path) -> None:
    layout = Layout(encoder="efficientnet-lite0", width=8, classes=(5, 6), cell=16)
    server = serve(model=toy_model(tmp_path, layout=layout))
    image = grey(160, 96, 0)
    image[:16, 144:] = 255  # the cell in the top right corner
    content = encoded(image)
    values = np.load(io.BytesIO(server.count(content, headers={"Accept": "application/x-npy"}).content))
    assert values.shape == (6, 10)
    assert np.argwhere(values > 0).tolist() == [[0, 9]]
    png = server.count(content, headers={"Accept": "image/png"}, params={"view": "heat"}).content
    heat = np.asarray(Image.open(io.BytesIO(png)))
    assert heat.shape == (96, 160, 3)
    bright = (heat != heat[-1, 0]).any(axis=2)
    expected = np.zeros((96, 160), bool)
    expected[:16, 144:] = True
    assert np.array_equal(bright, expected)


def test_by_accept_the_answer_is_an_array(service: Running, photo: bytes) -> None:
    for kind, shape in (("count", (50, 75)), ("density", (400, 600))):
        response = service.count(photo, headers={"Accept": "application/x-npy"}, params={"map": kind})
        array = np.load(io.BytesIO(response.content))
        assert array.shape == shape
        assert array.dtype == np.float32
        assert array.sum(dtype=np.float64) == pytest.approx(float(response.headers["x-count"]), rel=1e-5)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("*/*", "application/json"),
        ("text/html, */*;q=0.1", "application/json"),
        ("image/*", "image/png"),
        ("application/json;q=0.5, image/png", "image/png"),
        ("application/json;q=0, */*", "image/png"),
        ("application/x-npy", "application/x-npy"),
    ],
)
def test_accept_is_negotiated(service: Running, accept: str, expected: str) -> None:
    response = service.count(encoded(grey(64, 64)), headers={"Accept": accept})
    assert response.headers["content-type"] == expected


def test_nothing_acceptable_is_told(service: Running) -> None:
    response = service.count(encoded(grey(64, 64)), headers={"Accept": "text/html"})
    assert response.status_code == 406
    assert response.json()["type"] == "urn:uepnet:problem:not-acceptable"


def test_the_image_is_counted_upright(service: Running) -> None:
    image = Image.fromarray(grey(128, 64))
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    image.save(file, "JPEG", exif=exif)
    answer = service.count(file.getvalue(), "image/jpeg").json()
    assert (answer["width"], answer["height"]) == (64, 128)


@pytest.mark.parametrize(
    ("content", "kind", "status", "name"),
    [
        (b"not an image", "image/jpeg", 422, "wrong-image"),
        (b"", "image/jpeg", 422, "wrong-image"),
        (encoded(grey(64, 64))[:-60], "image/png", 422, "wrong-image"),
        (b"{}", "application/json", 415, "unsupported-media-type"),
        (b"a=b", "application/x-www-form-urlencoded", 415, "unsupported-media-type"),
        (b"x", "multipart/form-data", 422, "wrong-request"),
        (b"x", "multipart/form-data; boundary=abc", 422, "wrong-request"),
        (b"--abc\r\n\r\nx\r\n--abc--\r\n", "multipart/form-data; boundary=abc", 422, "wrong-request"),
    ],
)
def test_wrong_bodies_are_problems(service: Running, content: bytes, kind: str, status: int, name: str) -> None:
    response = service.count(content, kind)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"] == f"urn:uepnet:problem:{name}"
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem["detail"].endswith(".")


@pytest.mark.parametrize(
    ("zones", "name"),
    [
        ("{", "wrong-zones"),
        ('{"zones": [{"name": "a", "polygon": [[0, 0], [1, 1]]}]}', "wrong-zones"),
        ('{"zones": [{"name": "a", "polygon": [[0, 0], [1, 0], [1, 1]]}]}', "wrong-zones"),
        ('{"zones": [{"name": "a", "polygon": [[900, 900], [950, 900], [950, 950]]}]}', "wrong-zones"),
        ('{"zones": []}' + " " * 2**20, "wrong-zones"),
    ],
    ids=["no JSON", "two corners", "fractions without units", "outside", "too many bytes"],
)
def test_wrong_zones_are_problems(service: Running, zones: str, name: str) -> None:
    files = {"image": ("x.png", encoded(grey(64, 64))), "zones": (None, zones)}
    response = service.http.post("/v1/count", files=files)
    assert response.status_code == 422
    assert response.json()["type"] == f"urn:uepnet:problem:{name}"


def test_zones_that_take_long_to_check_hold_up_nobody_else(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    checking, go = threading.Event(), threading.Event()

    def slow(source: str) -> tuple[Zone, ...]:
        checking.set()
        assert go.wait(SOON)
        return load_zones(source)

    monkeypatch.setattr("uepnet.service.http.count_routes.load_zones", slow)
    angles = np.linspace(0, 2 * np.pi, 256, endpoint=False)
    circle = np.stack([32 + 30 * np.cos(angles), 32 + 30 * np.sin(angles)], axis=1).round(3).tolist()
    zones = json.dumps({"zones": [{"name": str(number), "polygon": circle} for number in range(64)]})
    files = {"image": ("x.png", encoded(grey(64, 64))), "zones": (None, zones)}
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(httpx.post, f"{service.url}/v1/count", files=files, timeout=SOON)
        try:
            assert checking.wait(SOON)
            service.http.get("/v2/health/live").raise_for_status()  # answered while the zones are being checked
            assert service.count(encoded(grey(64, 64))).status_code == 200
            assert not sent.done()
        finally:
            go.set()
        assert len(sent.result().json()["zones"]) == 64


def test_parts_that_nobody_asked_for_are_refused(service: Running) -> None:
    image = ("x.png", encoded(grey(64, 64)))
    for files in ([("picture", image)], [("image", image), ("zone", (None, "{}"))], [("image", image)] * 2):
        response = service.http.post("/v1/count", files=files)
        assert response.status_code == 422, files


@pytest.mark.parametrize(
    "query", ["view=side", "map=world", "include=all", "camera=", "camera=a%2Fb", "camera=" + "x" * 65]
)
def test_wrong_parameters_are_problems(service: Running, query: str) -> None:
    response = service.http.post(f"/v1/count?{query}", content=b"x", headers={"Content-Type": "image/png"})
    assert response.status_code == 422
    assert response.json()["type"] == "urn:uepnet:problem:wrong-request"
    assert query.partition("=")[0] in response.json()["detail"]
    assert "pattern" not in response.json()["detail"]


def test_a_batch_is_answered_in_order_and_a_bad_image_spoils_only_itself(service: Running) -> None:
    files = [
        ("image", ("light.png", encoded(grey(64, 64, 255)))),
        ("image", ("bad.png", b"bad")),
        ("image", ("dark.png", encoded(grey(320, 64, 0)))),
    ]
    response = service.http.post("/v1/count/batch", files=files).raise_for_status()
    results = BatchAnswer.model_validate_json(response.content).results
    assert [result.name for result in results] == ["light.png", "bad.png", "dark.png"]
    light, bad, dark = results
    assert light.answer is not None and light.answer.count > 0
    assert bad.answer is None and bad.problem is not None
    assert bad.problem.type == "urn:uepnet:problem:wrong-image"
    assert dark.answer is not None and dark.answer.count == 0
    assert dark.answer.width == 320
    assert "map" not in response.json()["results"][0]["answer"]


def test_a_batch_of_too_many_or_no_images_is_refused(service: Running) -> None:
    image = ("image", ("x.png", encoded(grey(32, 32))))
    assert service.http.post("/v1/count/batch", files=[image] * 33).status_code == 422
    assert service.http.post("/v1/count/batch", files=[image] * 32).status_code == 200
    assert service.http.post("/v1/count/batch", files=[("zones", (None, "{}"))]).status_code == 422
    assert service.http.post("/v1/count/batch", content=b"x").status_code == 415


def test_zones_of_a_batch_apply_to_every_image(service: Running) -> None:
    files = [("image", ("a.png", encoded(grey(64, 64)))), ("zones", (None, json.dumps(GATE)))]
    (entry,) = service.http.post("/v1/count/batch", files=files).json()["results"]
    assert entry["answer"]["zones"][0]["count"] == pytest.approx(entry["answer"]["count"] / 2)


def test_a_batch_holds_the_pixels_of_few_images_at_a_time(serve: Serve) -> None:
    server = serve(max_requests=2, decode_threads=1)
    image = encoded(grey(2000, 2000, 0))
    files = [("image", (str(number), image)) for number in range(8)]
    tracemalloc.start()
    try:
        answer = server.http.post("/v1/count/batch", files=files)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [entry["answer"]["count"] for entry in answer.json()["results"]] == [0.0] * 8
    assert peak < 4 * 2000 * 2000 * 3


def test_concurrent_requests_get_their_own_answers(service: Running) -> None:
    wrong = []

    def ask(value: int) -> None:
        with httpx.Client(base_url=service.url, timeout=60) as http:
            for _ in range(5):
                answer = http.post("/v1/count", content=images[value], headers={"Content-Type": "image/png"}).json()
                if answer["count"] != expected[value]:
                    wrong.append((value, answer))

    images = {value: encoded(grey(300, 300, value)) for value in (0, 60, 120, 180, 255)}
    expected = {value: service.count(image).json()["count"] for value, image in images.items()}
    assert len(set(expected.values())) == 5
    threads = [threading.Thread(target=ask, args=(value,)) for value in images]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_a_request_id_is_kept_or_made(service: Running) -> None:
    kept = service.count(encoded(grey(32, 32)), headers={"X-Request-Id": "frame-17"})
    assert kept.headers["x-request-id"] == kept.json()["request_id"] == "frame-17"
    made = service.count(encoded(grey(32, 32)), headers={"X-Request-Id": "bad id"})
    assert len(made.headers["x-request-id"]) == 32
