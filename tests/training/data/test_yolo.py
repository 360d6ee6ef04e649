"""YOLO's folders of labels: read, or refused in one sentence that helps."""

from pathlib import Path

import numpy as np
import pytest
from support import releases
from support.releases import only

from uepnet.model.errors import DataError
from uepnet.training.data.dataset import load


def test_an_outline_has_its_centre_and_pixels_are_no_shares(tmp_path: Path) -> None:
    releases.picture(tmp_path / "images" / "a.png")
    label = tmp_path / "labels" / "a.txt"
    label.parent.mkdir()
    label.write_text("0 0.25 0.25 0.75 0.25 0.75 0.75 0.25 0.75\n")
    assert only("yolo", tmp_path).points == pytest.approx(np.array([[48, 32]]))
    label.write_text("0 320 240 10 10\n")
    with pytest.raises(DataError, match="shares of the picture from 0 to 1, not 320 and 240"):
        _ = only("yolo", tmp_path).points


def test_classes_that_are_no_people_are_left_out_with_a_note(tmp_path: Path) -> None:
    releases.yolo(tmp_path)
    (tmp_path / "labels" / "train" / "1.txt").write_text("1 0.5 0.5 0.1 0.1\n0 0.5 0.5 0.1 0.1\n")
    first, second, _ = load("yolo", tmp_path)
    assert first.notes == ("counts the label person (3); left out: dog (1); choose labels with --dataset yolo:LABEL",)
    assert len(second.points) == 1
    assert [len(sample.points) for sample in load("yolo:dog", tmp_path)] == [0, 1, 0]


def test_a_folder_without_labels_says_what_it_needs(tmp_path: Path) -> None:
    releases.picture(tmp_path / "images" / "a.png")
    with pytest.raises(DataError, match=r"labels/NAME\.txt"):
        load("yolo", tmp_path)


def test_yolo_s_picture_of_another_case_is_noted_and_its_class_names_are_short(tmp_path: Path) -> None:
    releases.picture(tmp_path / "images" / "FRAME.png")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "frame.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    sample = only("yolo", tmp_path)
    assert sample.image.name == "FRAME.png" and "is listed as frame" in sample.notes[0]
    (tmp_path / "data.yaml").write_text("a: &a [x, x]\nnames: [*a]\n")
    with pytest.raises(DataError, match="is not YAML with a list `names`"):
        load("yolo", tmp_path)
