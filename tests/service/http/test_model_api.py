"""GET /v1/model and the reload: swapped without losing a request, or refused without harm."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from support.servers import SOON, HeldRuntime, Running, encoded, eventually, grey
from support.toy import toy_model

IMAGE = encoded(grey(300, 300))
ADMIN = {"X-API-Key": "the-admin-key"}
Serve = Callable[..., Running]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for version in ("1", "2"):
        toy_model(tmp_path / "models" / f"v{version}", version=version)
    toy_model(tmp_path / "elsewhere", version="9")
    return tmp_path / "models"


@pytest.fixture
def server(serve: Serve, models: Path) -> Running:
    return serve(model=models / "v1", models_dir=models, admin_key=ADMIN["X-API-Key"])


def reload(server: Running, path: str | None) -> httpx.Response:
    return server.http.post("/v1/model/reload", json={} if path is None else {"path": path}, headers=ADMIN)


def test_the_model_is_described(service: Running) -> None:
    model = service.http.get("/v1/model").json()
    assert model["name"] == model["artifact"]["name"] == "toy"
    assert model["provider"] == "CPUExecutionProvider"
    assert model["device"] == "cpu"
    assert model["fallback"] is None
    assert model["engine"] == "onnxruntime" and model["engine_version"]
    labels = {"name": "toy", "version": "1", "precision": "fp32", "device": "cpu"}
    assert service.metric("uepnet_model_info", engine="onnxruntime", provider="CPUExecutionProvider", **labels)


def test_a_reload_swaps_the_model(server: Running) -> None:
    assert reload(server, "v2").json()["version"] == "2"
    assert server.count(IMAGE).json()["model"]["version"] == "2"
    assert 'version="2"' in server.http.get("/metrics").text
    assert 'version="1"' not in server.http.get("/metrics").text
    assert reload(server, None).json()["version"] == "1"
    assert server.metric("uepnet_model_reloads_total", outcome="swapped") == 2


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "v1/../../elsewhere", "link", "a\0b", "x" * 4000])
def test_only_models_of_the_folder_can_be_loaded(server: Running, models: Path, path: str) -> None:
    (models / "link").symlink_to(models.parent / "elsewhere")
    response = reload(server, path)
    assert response.status_code in (409, 422)
    assert str(models) not in response.text or path.startswith("x")
    assert server.count(IMAGE).json()["model"]["version"] == "1"


def test_without_a_folder_only_the_configured_model_can_be_loaded(serve: Serve, models: Path) -> None:
    server = serve(model=models / "v1", admin_key=ADMIN["X-API-Key"])
    assert reload(server, str(models / "v1")).status_code == 200
    assert reload(server, str(models / "v2")).status_code == 409


def test_a_broken_model_is_refused_and_the_old_one_goes_on(server: Running, models: Path) -> None:
    shutil.copytree(models / "v2", models / "torn")
    with (models / "torn" / "model.fp32.onnx").open("r+b") as file:
        file.truncate(100)
    shutil.copytree(models / "v2", models / "half")
    (models / "half" / "artifact.json").write_text("{")
    for path in ("torn", "half", "missing"):
        response = reload(server, path)
        assert response.status_code == 409, response.text
        assert response.json()["type"] == "urn:uepnet:problem:model-refused"
    assert server.count(IMAGE).json()["model"]["version"] == "1"
    assert server.metric("uepnet_model_reloads_total", outcome="refused") == 3


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": ' + "1" * 10_000 + "}", '{"a":' * 100_000])
def test_a_model_directory_that_is_hard_to_read_is_409_without_its_path(
    server: Running, models: Path, text: str
) -> None:
    (models / "odd").mkdir(exist_ok=True)
    (models / "odd" / "artifact.json").write_text(text)
    response = reload(server, "odd")
    assert response.status_code == 409
    assert str(models) not in response.text
    (models / "odd" / "artifact.json").unlink()


def test_links_in_a_circle_are_409(server: Running, models: Path) -> None:
    (models / "here").symlink_to(models / "there")
    (models / "there").symlink_to(models / "here")
    assert reload(server, "here").status_code == 409
    assert reload(server, "x" * 4000).status_code == 409


def test_a_model_that_answers_nan_is_refused(server: Running, models: Path) -> None:
    spoilt = toy_model(models / "nan", "expectation", spoilt=True)
    assert spoilt.is_dir()
    response = reload(server, "nan")
    assert response.status_code == 409
    assert response.json()["detail"] == "The model answers numbers that are not finite."
    assert server.count(IMAGE).json()["model"]["version"] == "1"


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"path": 1}', b'{"where": "v2"}'])
def test_a_wrong_body_is_told(server: Running, content: bytes) -> None:
    assert server.http.post("/v1/model/reload", content=content, headers=ADMIN).status_code == 422


def test_a_request_under_way_finishes_on_the_old_model(serve: Serve, held: HeldRuntime, models: Path) -> None:
    server = serve(held, model=models / "v1", models_dir=models, admin_key=ADMIN["X-API-Key"])
    held.go.clear()
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(server.count(IMAGE)))
    waiting.start()
    eventually(lambda: held.tiles == 1)
    old = server.state.model.loaded
    assert old is not None
    with httpx.Client(base_url=server.url, timeout=SOON) as other:
        assert other.post("/v1/model/reload", json={"path": "v2"}, headers=ADMIN).status_code == 200
        fresh = other.post("/v1/count", content=IMAGE, headers={"Content-Type": "image/png"}).json()
    assert fresh["model"]["version"] == "2"
    held.go.set()
    waiting.join(SOON)
    assert answers[0].json()["model"] == {"name": "toy", "version": "1", "precision": "fp32", "device": "cpu"}
    eventually(lambda: not old.batcher.alive(SOON))


def test_a_full_house_can_be_given_another_model(serve: Serve, held: HeldRuntime, models: Path) -> None:
    server = serve(held, max_requests=1, model=models / "v1", models_dir=models, admin_key=ADMIN["X-API-Key"])
    held.go.clear()
    waiting = threading.Thread(target=lambda: server.count(IMAGE))
    waiting.start()
    eventually(lambda: held.tiles == 1)
    with httpx.Client(base_url=server.url, timeout=SOON) as other:
        assert other.post("/v1/count", content=IMAGE, headers={"Content-Type": "image/png"}).status_code == 429
        assert other.post("/v1/model/reload", json={"path": "v2"}, headers=ADMIN).status_code == 200
    held.go.set()
    waiting.join(SOON)


def test_reloads_under_load_lose_no_request(server: Running) -> None:
    stop = threading.Event()
    failures: list[str] = []
    versions: set[str] = set()

    def ask() -> None:
        with httpx.Client(base_url=server.url, timeout=SOON) as http:
            while not stop.is_set():
                response = http.post("/v1/count", content=IMAGE, headers={"Content-Type": "image/png"})
                if response.status_code != 200:
                    failures.append(response.text)
                else:
                    versions.add(response.json()["model"]["version"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(10):
        assert reload(server, f"v{2 - number % 2}").status_code == 200
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join(SOON)
    assert not failures
    assert versions == {"1", "2"}
