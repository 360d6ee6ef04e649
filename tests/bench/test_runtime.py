import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.toy import toy_model

from uepnet.bench.engines import show
from uepnet.bench.pictures import drawn, pictures
from uepnet.bench.runtime import backends, multiply_adds, peak_multiply_adds
from uepnet.bench.tiles import sizes
from uepnet.bench.untrained_model import untrained_model
from uepnet.cli import main
from uepnet.model.artifact import Layout, Scales
from uepnet.model.runtime import Runtime


def test_the_papers_network_takes_434_thousand_multiply_adds_a_pixel(tmp_path: Path) -> None:
    artifact = Runtime(toy_model(tmp_path)).artifact
    paper = artifact.model_copy(update={"layout": Layout(encoder="vgg16", width=512, classes=(25, 26))})
    assert multiply_adds(paper) == pytest.approx(434e3, rel=0.01)


def test_the_peak_is_that_of_a_processor_and_not_of_a_clock() -> None:
    assert 1e8 < peak_multiply_adds(threads=1, side=256) < 1e13


def test_the_halo_of_a_network_that_sees_single_cells_costs_work_and_removes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = toy_model(tmp_path / "toy", "expectation")
    photographs = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        Image.fromarray(drawn(500 + 32 * number, 300)).save(path)
        photographs.append(str(path))
    command = ["bench", "runtime", "--model", str(model), "--only", "halo", "--json", "--images", *photographs]
    assert main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"machine", "rows"} and answer["machine"]["cores"] >= 1
    small = [row for row in answer["rows"] if row["pictures"] == "3 photographs"]
    assert [row["halo"] for row in small] == [0, 32, 64, 96]
    works = [row["work"] for row in small]
    assert works == sorted(works) and works[0] >= 1 and works[-1] > 2
    assert all(row["seam_error"] == pytest.approx(0, abs=1e-6) for row in answer["rows"])
    assert all(row["cell_error"] == pytest.approx(0, abs=1e-6) for row in answer["rows"])


def test_a_seam_that_matters_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An untrained network sees far beyond a cell: tiles without a halo differ from the whole."""
    model = untrained_model(tmp_path, "efficientnet-lite0")
    assert main(["bench", "runtime", "--model", str(model), "--only", "halo", "--budget", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0]["halo"] == 0 and rows[0]["cell_error"] > 0
    assert {"fp32", "int8"} == set(Runtime(model, device="cpu").artifact.files)
    measured = {row["backend"]: row for row in backends(model, 1, drawn(128, 96), rounds=1)}
    assert {"torch eager", "onnx fp32", "onnx int8"} <= set(measured)
    assert measured["torch eager"]["times_torch"] == measured["onnx fp32"]["times_onnx_fp32"] == 1
    assert all(row["share_of_float_peak"] > 0 for row in measured.values())


def test_sizes_grow_until_the_budget_is_spent(tmp_path: Path) -> None:
    runtime = Runtime(toy_model(tmp_path))
    rows: list[dict[str, Any]] = sizes(runtime, drawn, budget_seconds=0.0)
    assert [row["image"] for row in rows] == ["256x256"]
    rows = sizes(runtime, lambda width, height: np.zeros((height, width, 3), np.uint8), budget_seconds=60.0)
    assert rows[-1]["image"] == "6000x4000" and rows[-1]["tiles"] > 500
    assert all(row["peak_rss_mib"] > 0 and row["work"] >= 1 for row in rows)


def test_a_mosaic_has_the_size_asked_for_and_all_photographs(tmp_path: Path) -> None:
    for number, level in enumerate((10, 200)):
        Image.new("RGB", (600, 400), (level, level, level)).save(tmp_path / f"{number}.png")
    picture = pictures([tmp_path / "0.png", tmp_path / "1.png"])(1000, 500)
    assert picture.shape == (500, 1000, 3)
    assert {10, 200} == set(np.unique(picture).tolist())


def test_tables_are_shown_without_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = toy_model(tmp_path)
    assert main(["bench", "runtime", "--model", str(model), "--only", "size", "--budget", "0"]) == 0
    assert "256x256" in capsys.readouterr().out


def test_engines_are_compared_from_jpeg_to_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = toy_model(tmp_path, "expectation", precisions=("fp32", "int8"))
    assert main(["bench", "runtime", "--model", str(model), "--only", "count", "--rounds", "2", "--json"]) == 0
    rows = {row["way"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert {"onnxruntime fp32", "onnxruntime int8", "onnxruntime int8, resized as in 0.1"} <= set(rows)
    assert rows["onnxruntime fp32"]["times_fp32"] == 1 and rows["onnxruntime fp32"]["count_difference"] == 0
    assert all(row["seconds"] > 0 and row["count_difference"] < 0.01 for row in rows.values())
    assert rows["onnxruntime int8"]["from_onnxruntime"] is None
    if find_spec("openvino") is not None:
        assert rows["openvino int8"]["worst_from_onnxruntime"] < 0.01


def test_the_comparison_of_engines_can_be_read_in_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    figures = {"seconds": 12.3456, "cpu_seconds": 23.4567, "times_fp32_cpu": 0.123, "times_before_cpu": 1.234}
    apart = {"count_difference": 0.0123, "worst": 0.1234, "from_onnxruntime": 0.0234, "worst_from_onnxruntime": 0.2345}
    show([{"way": "onnxruntime int8, resized as in 0.1", **figures, **apart}])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = " ".join(lines)
    for figure in ("12.346", "23.457", "0.12", "1.23", "1.2% 12.3%", "2.3% 23.4%", "onnxruntime int8,"):
        assert figure in shown


def test_more_pixels_of_the_same_picture_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = toy_model(tmp_path / "model", "expectation", scales=Scales(first_side=256, crowded=99, beside=99))
    assert main(["bench", "runtime", "--model", str(model), "--only", "enlarged", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [round(row["megapixels"], 1) for row in rows] == [0.8, 3.1, 7.1, 12.6]
    assert len({row["megapixels_seen"] for row in rows}) == 1  # nobody is crowded: one pass, whatever the size
    assert all(row["seconds"] > 0 for row in rows)
