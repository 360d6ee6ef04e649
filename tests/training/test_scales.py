"""Tuning the choice of the scale, on generated crowds and a toy model."""

import json
from pathlib import Path

import pytest
from support.scenes import release
from support.toy import toy_model

from uepnet.cli import main
from uepnet.model.artifact import Artifact, Calibration, Scales
from uepnet.model.count import count_image
from uepnet.model.runtime import Runtime
from uepnet.training.data import dataset
from uepnet.training.scales import ScalesRow, best, candidates, tune

CALIBRATION = Calibration(level=0.9, low=-0.2, high=0.2, offset=5.0, power=1.0, images=50)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    release(folder / "crowds", images=16)
    toy_model(folder / "toy", "expectation", calibration=CALIBRATION)
    return folder


def row(scales: Scales | None, scaled: float, megapixels: float) -> ScalesRow:
    return ScalesRow(scales, (10.0,), (scaled,), (0.0,), (megapixels,))


def test_the_cheapest_way_within_two_per_cent_of_the_lowest_error_is_best() -> None:
    cheap, dear, wrong = candidates()[:3]
    rows = [row(None, 1.0, 2.0), row(cheap, 1.01, 1.0), row(dear, 1.0, 1.5), row(wrong, 1.1, 0.1)]
    assert best(rows).scales == cheap
    assert best([row(None, 1.0, 2.0), row(wrong, 1.1, 0.1)]).scales is None


def test_a_simulated_way_counts_what_the_served_path_counts(place: Path) -> None:
    """The toy sees each cell alone, so that halos change nothing: simulation and service must agree."""
    samples = dataset.load("shanghaitech-a", place / "crowds", "train")[:2]
    runtime = Runtime(place / "toy", device="cpu")
    rows = tune([samples], runtime.artifact, runtime.run_tiles)
    assert len(rows) == 1 + len(candidates())
    for found in (rows[0], rows[1], rows[-1]):
        artifact = runtime.artifact.model_copy(update={"scales": found.scales})
        counts = [count_image(sample.load_image(), artifact, runtime.run_tiles).count for sample in samples]
        errors = [abs(count - len(sample.points)) for count, sample in zip(counts, samples, strict=True)]
        assert found.mae[0] == pytest.approx(sum(errors) / len(errors), rel=1e-3)


def test_the_command_writes_the_best_way_and_removes_the_range(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        f"analyse scale --dataset shanghaitech-a --root {place / 'crowds'} --split val --json --model {place / 'toy'}"
    )
    assert main(line.split()) == 0
    answer = json.loads(capsys.readouterr().out)
    assert Artifact.load(place / "toy").calibration == CALIBRATION  # nothing is written unasked
    assert main([*line.split(), "--write"]) == 0
    assert "evaluate --calibrate" in capsys.readouterr().err
    written = Artifact.load(place / "toy")
    assert written.calibration is None
    assert (None if written.scales is None else written.scales.model_dump()) == answer["chosen"]["scales"]
    Runtime(place / "toy", device="cpu")  # its graph still belongs to it


def test_the_bundled_model_is_never_written(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"analyse scale --dataset shanghaitech-a --root {place / 'crowds'} --split val --write"
    assert main(line.split()) == 2
    assert "never written" in capsys.readouterr().err
