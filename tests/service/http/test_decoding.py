"""The paper's decoding, argmax, of a model that decodes by expectation: counts, ranges and class maps."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from support.servers import Running, encoded, grey, running
from support.service_fixtures import CALIBRATION
from support.toy import HEADS, toy_model

from uepnet.model.artifact import Artifact
from uepnet.model.count import count_image
from uepnet.model.errors import InputError
from uepnet.model.image import load_image
from uepnet.model.intervals import proxy_counts
from uepnet.model.runtime import Runtime
from uepnet.service.settings import Settings


@pytest.fixture(scope="module")
def expecting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated model whose decoding is the expectation."""
    return toy_model(tmp_path_factory.mktemp("models") / "toy", decoding="expectation", calibration=CALIBRATION)


@pytest.fixture(scope="module")
def server(expecting: Path) -> Iterator[Running]:
    with running(Settings(port=0, model=expecting, history="off")) as started:
        yield started


@pytest.fixture(scope="module")
def photo() -> bytes:
    array = grey(600, 400, 0)
    array[:, :300] = np.random.default_rng(1).integers(0, 255, (400, 300, 3))
    return encoded(array)


def array_of(answer: httpx.Response) -> np.ndarray:
    return np.load(io.BytesIO(answer.raise_for_status().content))


def test_argmax_counts_by_the_proxies_and_has_no_range(server: Running, expecting: Path, photo: bytes) -> None:
    own, chosen = (server.count(photo, params=params).json() for params in ({}, {"decoding": "argmax"}))
    assert own["range"] is not None and chosen["range"] is None
    assert own["count"] != chosen["count"]
    runtime = Runtime(expecting)
    expected = count_image(load_image(photo), runtime.artifact.read_by("argmax"), runtime.run_tiles)
    assert chosen["count"] == expected.count
    assert server.count(photo, params={"decoding": "expectation"}).json()["range"] == own["range"]


def test_class_maps_are_the_classes_that_the_count_is_made_of(server: Running, photo: bytes) -> None:
    headers = {"Accept": "application/x-npy"}
    params = {"map": "classes", "decoding": "argmax"}
    answer = server.http.post(
        "/v1/count", content=photo, headers=headers | {"Content-Type": "image/png"}, params=params
    )
    classes = array_of(answer)
    assert classes.shape == (2, 50, 75) and classes.dtype == np.uint8
    people = sum(proxy_counts(one, head.proxies).sum() for one, head in zip(classes, HEADS, strict=True)) / 2
    assert people == pytest.approx(float(answer.headers["X-Count"]))
    assert "X-Range-Low" not in answer.headers


def test_a_batch_is_decoded_as_asked(server: Running, photo: bytes) -> None:
    answers = server.http.post("/v1/count/batch", params={"decoding": "argmax"}, files={"image": ("a", photo)}).json()
    (entry,) = answers["results"]
    assert entry["answer"]["count"] == server.count(photo, params={"decoding": "argmax"}).json()["count"]
    assert entry["answer"]["range"] is None


def test_the_setting_changes_the_default_and_a_request_can_ask_for_the_models_own(
    expecting: Path, serve: Callable[..., Running], server: Running, photo: bytes
) -> None:
    argmax = serve(model=expecting, decoding="argmax")
    assert argmax.count(photo).json()["range"] is None
    assert argmax.count(photo).json()["count"] == server.count(photo, params={"decoding": "argmax"}).json()["count"]
    own = argmax.count(photo, params={"decoding": "expectation"}).json()
    assert own["count"] == server.count(photo).json()["count"] and own["range"] is not None
    assert argmax.http.get("/v1/model").json()["artifact"]["decoding"] == "argmax"


def test_a_decoding_that_the_model_lacks_is_refused(service: Running, photo: bytes) -> None:
    for path, sent in (("/v1/count", {"content": photo}), ("/v1/count/batch", {"files": {"image": ("a", photo)}})):
        headers = {"Content-Type": "image/png"} if "content" in sent else {}
        answer = service.http.post(path, params={"decoding": "expectation"}, headers=headers, **sent)
        assert answer.status_code == 422
        assert answer.json()["detail"] == "This model decodes by argmax, not by expectation."
    assert service.count(photo, params={"decoding": "guess"}).status_code == 422


def test_tritons_client_gets_class_maps_by_name(server: Running, photo: bytes) -> None:
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    tensor = triton.InferInput("images", [2], "BYTES")
    tensor.set_data_from_numpy(np.array([photo, encoded(grey(64, 32))], object))
    outputs = [triton.InferRequestedOutput(name) for name in ("count", "range", "classes", "class_cells")]
    result = client.infer("uepnet", [tensor], outputs=outputs, parameters={"decoding": "argmax"})
    assert result.as_numpy("classes").shape == (2, 2, 50, 75)
    assert result.as_numpy("class_cells").tolist() == [[50, 75], [4, 8]]
    assert np.isnan(result.as_numpy("range")).all()
    assert result.as_numpy("count")[0] == pytest.approx(
        server.count(photo, params={"decoding": "argmax"}).json()["count"]
    )
    without = client.infer("uepnet", [tensor])
    assert {output["name"] for output in without.get_response()["outputs"]} == {"count", "range", "count_map", "cells"}


def test_a_regression_model_has_neither_classes_nor_argmax(tmp_path: Path, serve: Callable[..., Running]) -> None:
    model = toy_model(tmp_path / "toy", decoding="regression")
    with pytest.raises(InputError, match="decodes by regression, not by argmax"):
        Artifact.load(model).read_by("argmax")
    started = serve(model=model)
    sent = {"content": encoded(grey(64, 64)), "headers": {"Content-Type": "image/png", "Accept": "application/x-npy"}}
    answer = started.http.post("/v1/count", params={"map": "classes"}, **sent)
    assert answer.status_code == 422
    assert "no class maps" in answer.json()["detail"]
