import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from support.engines import need_engine
from support.toy import toy_model

from uepnet.cli import main
from uepnet.model.artifact import Artifact
from uepnet.model.runtime.onnxruntime_engine import CUDA


def test_a_healthy_model_is_described_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", str(toy_model(tmp_path)), "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] and found["problems"] == []
    assert found["packages"]["uepnet"] and found["packages"]["onnx"]
    assert found["providers"]["CPUExecutionProvider"] == "loads"
    assert found["model"]["name"] == "toy" and found["model"]["precision"] == "fp32"
    assert found["check"]["difference"] == 0 and found["check"]["chosen"]["count"] > 0


def test_the_report_names_what_would_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", str(toy_model(tmp_path)), "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "fp32 on cpu (CPUExecutionProvider" in text and "verdict" in text and "healthy" in text


def test_a_missing_device_is_a_problem_and_the_rest_is_still_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    assert main(["doctor", "--model", str(toy_model(tmp_path)), "--device", "cuda"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "Device cuda cannot run the model" in text and "'uepnet[gpu]'" in text
    assert "onnxruntime" in text and "problems found" in text


def test_a_broken_model_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (toy_model(tmp_path) / "model.fp32.onnx").write_bytes(b"")
    assert main(["doctor", "--model", str(tmp_path), "--json"]) == 1
    assert "is damaged" in json.loads(capsys.readouterr().out)["problems"][0]


def test_it_checks_on_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = toy_model(tmp_path / "toy")
    Image.new("RGB", (300, 100), (255, 255, 255)).save(tmp_path / "white.png")
    command = ["doctor", "--model", str(model), "--device", "cpu", "--image", str(tmp_path / "white.png"), "--json"]
    assert main(command) == 0
    check = json.loads(capsys.readouterr().out)["check"]
    assert check["tile"] == "288x96" and check["chosen"]["count"] == pytest.approx(36 * 12 * 4.25)


def test_parity_of_the_other_engines_is_measured_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_engine("openvino")
    model = toy_model(tmp_path / "toy", "expectation")
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (300, 400, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(photos / f"{number}.png")
    before = Artifact.load(model)
    command = ["doctor", "--model", str(model), "--parity", str(photos)]
    assert main([*command, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["engines"]["openvino"]["fp32"]
    assert measured["count_difference"] < 0.001 and measured["tiles"] == 16
    assert Artifact.load(model) == before
    assert main([*command, "--write"]) == 0
    recorded = Artifact.load(model).parity("openvino", "fp32")
    assert recorded is not None and recorded.count_difference < 0.001
    assert main(["doctor", "--model", str(model), "--json"]) == 0
    assert "reason" in json.loads(capsys.readouterr().out[len("Recorded") :].partition("\n")[2])["model"]


def test_the_bundled_model_is_never_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--parity", str(tmp_path), "--write"]) == 2
    assert "bundled model is not written to" in capsys.readouterr().err
    assert main(["doctor", "--write"]) == 2


def test_an_engine_that_was_asked_for_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_engine("openvino")
    assert main(["doctor", "--model", str(toy_model(tmp_path)), "--engine", "openvino", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"]["engine"] == "openvino" and found["providers"]["OpenVINO CPU"] == "loads"
    assert found["check"]["cpu"]["engine"] == "onnxruntime" and found["check"]["difference"] < 0.001
