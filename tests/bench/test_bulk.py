"""`uepnet bench bulk`: both ways count; figures are not judged here."""

import json
from pathlib import Path

import pytest
from support.servers import encoded, grey
from support.toy import toy_model

from uepnet.bench.bulk import speed
from uepnet.cli import main


def test_the_speed_is_that_from_the_first_part_to_the_last() -> None:
    assert speed([(20.0, 8), (21.0, 16), (24.0, 40)]) == {
        "seconds": 24.0,
        "images_per_second": 8.0,
        "start_seconds": 20.0,
    }


@pytest.mark.system
@pytest.mark.timeout(600)
def test_one_process_and_ray_count_the_same_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(encoded(grey(96, 64, 50 * number)))
    images = [str(path) for path in sorted(tmp_path.glob("*.png"))]
    model = toy_model(tmp_path / "toy")
    options = ["--model", str(model), "--seconds", "0.1", "--workers", "2", "--part", "8", "--json"]
    assert main(["bench", "bulk", "--images", *images, *options]) == 0
    one, ray = json.loads(capsys.readouterr().out)["rows"]
    assert one["images"] > 0 and ray["images"] >= 24
    assert ray["seconds"] > ray["start_seconds"] > 0
    assert ray["times_one_process"] == pytest.approx(ray["images_per_second"] / one["images_per_second"])


def test_an_image_that_cannot_be_counted_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, model = tmp_path / "a.png", toy_model(tmp_path / "toy")
    image.write_bytes(b"no image")
    assert main(["bench", "bulk", "--images", str(image), "--model", str(model)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
