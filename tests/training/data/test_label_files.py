"""What is written for labelling tools is read back point by point, and is a proposal until somebody saved it."""

import json
from pathlib import Path

import numpy as np
import pytest
from support import releases

from uepnet.model.errors import DataError
from uepnet.training.data.annotations import UNCORRECTED
from uepnet.training.data.dataset import load
from uepnet.training.data.label_files import SUFFIXES, WRITERS, Proposal, Wording, write

NAMES = ("a.png", "night/b & <c>.png")
POINTS = (np.array([[12.25, 30.5], [90.0, 1.5], [0.0, 64.0]]), np.zeros((0, 2)))
PROPOSALS = [Proposal(name, releases.SIZE, points) for name, points in zip(NAMES, POINTS, strict=True)]
WORDING = Wording('head "one"', "uepnet 1 & more", "/data/local-files/?d=")


def written(folder: Path, format_name: str) -> Path:
    for name in NAMES:
        releases.picture(folder / "images" / name)
    path = folder / f"labels{SUFFIXES[format_name]}"
    path.write_text(write(format_name, PROPOSALS, WORDING))
    return path


@pytest.mark.parametrize("format_name", ["cvat", "coco", "csv"])
def test_proposals_are_read_back_and_said_to_be_no_labels_yet(format_name: str, tmp_path: Path) -> None:
    written(tmp_path, format_name)
    samples = load(format_name, tmp_path)
    assert [sample.name for sample in samples] == list(NAMES)
    for sample, points in zip(samples, POINTS, strict=True):
        assert sample.points == pytest.approx(points, abs=0.01)
    assert UNCORRECTED in samples[0].notes


def test_predictions_of_label_studio_are_labels_only_after_they_are_submitted(tmp_path: Path) -> None:
    path = written(tmp_path, "label-studio")
    with pytest.raises(DataError, match="no submitted annotation"):
        load("label-studio", tmp_path)
    tasks = json.loads(path.read_text())
    for task in tasks:  # what the tool makes of them when somebody submits
        (prediction,) = task.pop("predictions")
        task["annotations"] = [{"result": prediction["result"], "was_cancelled": False}]
    path.write_text(json.dumps(tasks))
    first, second = load("label-studio", tmp_path)
    assert first.points == pytest.approx(POINTS[0], abs=0.01)
    assert (first.name, len(second.points), first.notes) == ("a.png", 0, ())


def test_every_format_has_a_suffix() -> None:
    assert WRITERS.keys() == SUFFIXES.keys()
