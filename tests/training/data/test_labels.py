"""Which labels mean people: known names, chosen ones, and questions where nobody can tell."""

from pathlib import Path

import pytest
from support.releases import coco_file, only

from uepnet.model.errors import DataError
from uepnet.training.data.dataset import load


def test_labels_in_other_languages_count_and_none_is_dropped_in_silence(tmp_path: Path) -> None:
    coco_file(tmp_path, ["person", "Kopf", "Hund"], [0, 1, 1, 2])
    sample = only("coco", tmp_path)
    assert len(sample.points) == 3
    assert "left out: Hund (1)" in sample.notes[0]
    coco_file(tmp_path, ["person", "Kopf"], [0, 1, 1])
    assert "counts the labels Kopf (2), person (1)" in only("coco", tmp_path).notes[0]
    assert len(only("coco:kopf", tmp_path).points) == 2
    assert len(only("coco:Kopf+person", tmp_path).points) == 3


def test_a_single_label_counts_whatever_its_name(tmp_path: Path) -> None:
    coco_file(tmp_path, ["Zielobjekt"], [0, 0])
    sample = only("coco", tmp_path)
    assert (len(sample.points), sample.notes) == (2, ())


@pytest.mark.parametrize(("labels", "used"), [(["cat", "dog"], [0, 1]), (["person", "dog"], [1])])
def test_labels_that_may_mean_anything_are_a_question(labels: list[str], used: list[int], tmp_path: Path) -> None:
    path = coco_file(tmp_path, labels, used)
    with pytest.raises(DataError, match="none is known to mean people: choose with --dataset coco:LABEL") as refusal:
        load("coco", tmp_path)
    assert str(path) in str(refusal.value)


def test_a_label_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    coco_file(tmp_path, ["person"], [0])
    with pytest.raises(DataError, match=r"no label 'head'; it has person \(1\)"):
        load("coco:head", tmp_path)
    with pytest.raises(DataError, match="csv has no labels to choose"):
        load("csv:head", tmp_path)
