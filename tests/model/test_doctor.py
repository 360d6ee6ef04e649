import json
from pathlib import Path

import onnxruntime
import pytest
from PIL import Image
from toy import toy_model

from uepnet.cli import main
from uepnet.model.runtime import CUDA


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
    assert "onnxruntime" in text and "not as asked" in text


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
