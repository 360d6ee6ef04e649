"""The Open Inference Protocol, as Triton's own client and as plain JSON speak it."""

import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from support.servers import Running, encoded, grey
from support.toy import toy_model
from tritonclient.utils import InferenceServerException

from uepnet.service.http.protocol_codec import encode_response

LIGHT, DARK = encoded(grey(64, 64)), encoded(grey(128, 32, 0))
INFER = "/v2/models/uepnet/infer"


@pytest.fixture
def client(service: Running) -> triton.InferenceServerClient:
    return triton.InferenceServerClient(f"127.0.0.1:{service.port}")


def images(*items: bytes) -> triton.InferInput:
    tensor = triton.InferInput("images", [len(items)], "BYTES")
    tensor.set_data_from_numpy(np.array(items, object))
    return tensor


def body(*items: str, **fields: object) -> dict[str, object]:
    tensor = {"name": "images", "shape": [len(items)], "datatype": "BYTES", "data": list(items)}
    return {"inputs": [{**tensor, **fields}]}


def test_tritons_client_sees_a_healthy_server_and_the_model(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("uepnet")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    metadata = client.get_model_metadata("uepnet")
    assert metadata["inputs"] == [{"name": "images", "datatype": "BYTES", "shape": [-1]}]
    assert not client.is_model_ready("other")


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready"])
def test_load_balancers_may_ask_for_the_head_alone(service: Running, path: str) -> None:
    answer = service.http.head(path)
    assert answer.status_code == 200 and answer.content == b""


def test_tritons_client_counts_images(client: triton.InferenceServerClient, service: Running) -> None:
    result = client.infer("uepnet", [images(LIGHT, DARK)], request_id="7")
    expected = service.count(LIGHT).json()
    counts = result.as_numpy("count")
    assert counts[0] == pytest.approx(expected["count"])
    assert counts[1] == 0
    assert result.as_numpy("range")[0] == pytest.approx([expected["range"]["low"], expected["range"]["high"]])
    maps, cells = result.as_numpy("count_map"), result.as_numpy("cells")
    assert maps.shape == (2, 8, 16)
    assert cells.tolist() == [[8, 8], [4, 16]]
    assert maps.sum(axis=(1, 2)) == pytest.approx(counts)
    assert result.get_response()["id"] == "7"
    assert result.get_response()["model_version"] == "1"


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_client_gets_the_outputs_it_asks_for(client: triton.InferenceServerClient, binary: bool) -> None:
    outputs = [triton.InferRequestedOutput("count", binary_data=binary)]
    result = client.infer("uepnet", [images(LIGHT)], outputs=outputs)
    assert result.as_numpy("count").shape == (1,)
    assert result.as_numpy("count_map") is None


def test_tritons_client_is_told_what_is_wrong(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="known format"):
        client.infer("uepnet", [images(LIGHT, b"bad")])
    with pytest.raises(InferenceServerException, match="path is unknown"):
        client.infer("other", [images(LIGHT)])
    with pytest.raises(InferenceServerException, match=r"outputs\.0\.name"):
        client.infer("uepnet", [images(LIGHT)], outputs=[triton.InferRequestedOutput("heat")])


def test_plain_json_with_base64_works_too(service: Running) -> None:
    answer = service.http.post(INFER, json=body(base64.b64encode(LIGHT).decode())).json()
    outputs = {output["name"]: output for output in answer["outputs"]}
    assert outputs["count"]["data"] == [service.count(LIGHT).json()["count"]]
    assert outputs["count_map"]["shape"] == [1, 8, 8]
    assert len(outputs["count_map"]["data"]) == 64


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"inputs": []},
        body("no base64!"),
        body("AAAA", shape=[2]),
        body("AAAA", shape=[0]),
        body("AAAA", shape=[2**62, 2**62]),
        body("AAAA", datatype="FP32"),
        body("AAAA", name="picture"),
        body(*["AAAA"] * 33),
    ],
)
def test_wrong_requests_are_told(service: Running, wrong: dict[str, object]) -> None:
    response = service.http.post(INFER, json=wrong)
    assert response.status_code == 422
    assert response.json()["error"] == response.json()["detail"]


@pytest.mark.parametrize("length", ["-1", "x", "999999", "10", "9" * 5000])
def test_a_wrong_header_length_is_told(service: Running, length: str) -> None:
    headers = {"Inference-Header-Content-Length": length}
    assert service.http.post(INFER, content=b'{"inputs": []}', headers=headers).status_code == 422


@pytest.mark.parametrize("tail", [b"\0", struct.pack("<I", 100), struct.pack("<I", 2**32 - 1) + b"x"])
def test_raw_items_that_do_not_fit_are_told(service: Running, tail: bytes) -> None:
    text = b'{"inputs": [{"name": "images", "shape": [1], "datatype": "BYTES"}]}'
    headers = {"Inference-Header-Content-Length": str(len(text))}
    assert service.http.post(INFER, content=text + tail, headers=headers).status_code == 422


def test_a_model_without_calibration_answers_no_range_in_valid_json(
    serve: Callable[..., Running], tmp_path: Path
) -> None:
    server = serve(model=toy_model(tmp_path / "bare"))
    asked = {**body(base64.b64encode(LIGHT).decode()), "outputs": [{"name": "range"}]}
    text = server.http.post(INFER, json=asked).text
    assert json.loads(text, parse_constant=pytest.fail)["outputs"][0]["data"] == [None, None]
    result = triton.InferenceServerClient(f"127.0.0.1:{server.port}").infer("uepnet", [images(LIGHT)])
    assert np.isnan(result.as_numpy("range")).all()


def test_large_tensors_are_the_same_in_json_and_raw() -> None:
    array = np.random.default_rng(0).random((2, 150, 160), np.float32)
    text, _ = encode_response({"id": ""}, {"count_map": array}, {"count_map": False})
    tensor = json.loads(text)["outputs"][0]
    assert np.array_equal(np.array(tensor["data"], "<f4").reshape(tensor["shape"]), array)
    raw, length = encode_response({"id": ""}, {"count_map": array}, {"count_map": True})
    assert raw[length:] == array.tobytes()
    assert json.loads(raw[:length])["outputs"][0]["parameters"] == {"binary_data_size": array.nbytes}
