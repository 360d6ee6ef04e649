"""`uepnet bench growth`: every question is answered by the real parts; figures are not judged here."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.toy import toy_model

from uepnet.bench.growth import MOST_ZONES
from uepnet.bench.served import SleepingRuntime
from uepnet.cli import main
from uepnet.model.artifact import Artifact, Scales
from uepnet.model.count import count_image
from uepnet.model.zones import MAX_ZONES


def test_each_question_has_a_row_for_each_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, picture = toy_model(tmp_path / "toy", "expectation"), tmp_path / "growth.png"
    sizes = ["--megapixels", "0.2", "0.1", "--zones", "0", "64", "--frames", "5", "--clients", "2", "--seconds", "2"]
    command = ["bench", "growth", "--model", str(model), *sizes, "--json", "--plot", str(picture)]
    assert main(command) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["question"], row["x"]) for row in rows] == [
        ("pixels", 0.1),
        ("pixels", 0.2),
        ("clients", 2),
        ("zones", 0),
        ("zones", 64),
        ("video", 5),
    ]
    assert all(row["cost"] > 0 for row in rows)
    assert 0.2 <= rows[1]["megapixels_seen"] < 0.4  # once, in tiles that overlap
    assert rows[2]["answered"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_most_zones_are_those_that_an_image_may_have() -> None:
    assert MOST_ZONES == MAX_ZONES


def test_sizes_beyond_what_the_service_takes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["bench", "growth", "--only", "pixels", "--megapixels", "51"])
    assert refused.value.code == 2
    assert "51 is not within 0.01 and 50" in capsys.readouterr().err


def test_a_device_that_finds_crowds_is_asked_again_at_larger_scales(tmp_path: Path) -> None:
    scales = Scales(first_side=256, finest=2.0, block=64, halo=32, crowded=0.07, beside=0.05)
    artifact = Artifact.load(toy_model(tmp_path, "expectation", scales=scales))
    image = np.random.default_rng(0).integers(0, 256, (512, 512, 3), dtype=np.uint8)  # full of detail
    nobody = count_image(image, artifact, SleepingRuntime(artifact, 0.0).run_tiles)
    crowd = count_image(image, artifact, SleepingRuntime(artifact, 0.0, crowded=True).run_tiles)
    assert nobody.count == 0 and len(nobody.scales) == 1
    assert crowd.count > 0 and len(crowd.scales) > 1
