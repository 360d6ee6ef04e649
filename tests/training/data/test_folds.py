"""Cross-validation as published: one command, every fold with its own intervals and weights."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from support.scenes import scene, starting_weights

from uepnet.cli import main
from uepnet.model.artifact import Artifact


def test_all_folds_are_trained_and_tested_by_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    root = tmp_path / "ucf"
    root.mkdir()
    for number in range(1, 51):
        image, points = scene(rng, int(rng.integers(5, 60)))
        image.save(root / f"{number}.jpg")
        savemat(str(root / f"{number}_ann.mat"), {"annPoints": points})
    start = starting_weights(tmp_path / "start.safetensors")
    line = f"train --dataset ucf-cc-50 --root {root} --fold all --out {tmp_path / 'runs'} --init {start} --width 16"
    line += " --intervals 6 --crop 64 --batch 1 --steps 1 --warm-up 0 --threads 1 --quiet"
    assert main(line.split()) == 0
    told = json.loads((tmp_path / "runs" / "folds.json").read_text())
    assert [row["images"] for row in told["folds"]] == [10] * 5
    assert told["mean"]["mae"] == pytest.approx(np.mean([row["mae"] for row in told["folds"]]))
    borders = {Artifact.load(tmp_path / "runs" / f"fold-{fold}").heads[0].borders for fold in range(1, 6)}
    assert len(borders) == 5
    assert "mean of 5 folds" in capsys.readouterr().out


def test_all_folds_of_a_data_set_without_folds_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"train --dataset shanghaitech-a --root {tmp_path} --fold all --out {tmp_path / 'runs'}"
    assert main(line.split()) == 2
    assert "cross-validated" in capsys.readouterr().err
