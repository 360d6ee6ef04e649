"""COCO files as tools write them: read, or refused in one sentence that helps."""

import json
from pathlib import Path

import pytest
from support import releases
from support.releases import coco_file, only

from uepnet.model.errors import DataError
from uepnet.training.data.dataset import load

WIDTH, HEIGHT = releases.SIZE


def coco_images(folder: Path, *images: dict[str, object], **annotation: object) -> None:
    content = {"images": images, "annotations": [{"image_id": 1, "bbox": [1, 1, 2, 2], **annotation}]}
    (folder / "result.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("images", "annotation", "says"),
    [
        ([{"id": 1, "file_name": "a.png"}, {"id": 1, "file_name": "b.png"}], {}, "one id to several images"),
        ([{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "a.png"}], {}, "lists the image a.png twice"),
        (
            [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "A.png"}],
            {},
            "lists the picture a.png as a.png and",
        ),
        ([{"id": 1, "file_name": None}], {}, "is not COCO"),
        ([], {}, "an empty list of images"),
        ([{"id": 1, "file_name": "a.png"}], {"iscrowd": 1}, "annotations of whole crowds alone"),
    ],
)
def test_images_of_coco_that_cannot_be_told_apart_are_refused(
    images: list[dict[str, object]], annotation: dict[str, object], says: str, tmp_path: Path
) -> None:
    releases.picture(tmp_path / "a.png")
    coco_images(tmp_path, *images, **annotation)
    with pytest.raises(DataError, match=says):
        load("coco", tmp_path)


def test_identifiers_of_coco_may_be_text_in_one_place_and_numbers_in_another(tmp_path: Path) -> None:
    releases.picture(tmp_path / "a.png")
    coco_images(tmp_path, {"id": "1", "file_name": "a.png"})
    assert only("coco", tmp_path).points.tolist() == [[2, 2]]


def test_points_of_coco_follow_a_picture_that_was_made_smaller_and_a_wrong_shape_is_ignored(tmp_path: Path) -> None:
    releases.picture(tmp_path / "a.png")
    coco_images(tmp_path, {"id": 1, "file_name": "a.png", "width": 2 * WIDTH, "height": 2 * HEIGHT})
    assert only("coco", tmp_path).points.tolist() == [[1, 1]]
    coco_images(tmp_path, {"id": 1, "file_name": "a.png", "width": HEIGHT, "height": WIDTH})
    assert only("coco", tmp_path).points.tolist() == [[2, 2]]


def test_coco_without_an_annotation_says_why_cvat_s_points_are_missing(tmp_path: Path) -> None:
    coco_file(tmp_path, ["head"], [])
    with pytest.raises(DataError, match="CVAT leaves points without a skeleton out"):
        load("coco", tmp_path)


@pytest.mark.parametrize("name", ["a\0b.png", "x" * 300 + ".png", "\ud800.png", "d/" * 2000 + "a.png"])
def test_a_name_that_no_file_can_have_is_refused(name: str, tmp_path: Path) -> None:
    coco_images(tmp_path, {"id": 1, "file_name": name})
    with pytest.raises(DataError, match="by a name that no file can have"):
        load("coco", tmp_path)


def test_numbers_of_thousands_of_digits_are_refused(tmp_path: Path) -> None:
    for digits in (400, 5000):
        (tmp_path / "a.json").write_text('{"images": [{"id": ' + "9" * digits + "}]}")
        with pytest.raises(DataError, match="numbers too long"):
            load("coco", tmp_path)
