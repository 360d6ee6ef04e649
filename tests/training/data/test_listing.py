"""Pictures by the names that labels give them, and folders that hold something else."""

from pathlib import Path

import pytest
from support import releases
from support.releases import only

from uepnet.model.errors import DataError
from uepnet.training.data.dataset import load


@pytest.mark.parametrize(
    ("listed", "stored"),
    [
        ("Frame1.JPG", "frame1.jpg"),
        ("Bru\u0308cke.jpg", "Br\u00fccke.jpg"),
        ("frame1", "frame1.jpg"),
        ("C:\\Users\\me\\camera\\frame1.jpg", "frame1.jpg"),
        ("https://storage.example/bucket/frame1.jpg", "frame1.jpg"),
    ],
)
def test_a_picture_of_a_slightly_different_name_is_found_with_a_note(listed: str, stored: str, tmp_path: Path) -> None:
    releases.picture(tmp_path / "images" / stored)
    (tmp_path / "points.csv").write_text(f"image,x,y\n{listed},1,2\n", encoding="utf-8")
    sample = only("csv", tmp_path)
    assert sample.image == tmp_path / "images" / stored
    (note,) = sample.notes
    assert f"the picture found for it is images/{stored}" in note


def test_a_name_that_may_mean_two_pictures_finds_neither(tmp_path: Path) -> None:
    for folder in ("monday", "tuesday"):
        releases.picture(tmp_path / "images" / folder / "frame1.jpg")
    (tmp_path / "points.csv").write_text("image,x,y\nFRAME1.jpg,1,2\n")
    assert not only("csv", tmp_path).image.exists()


@pytest.mark.parametrize(
    ("dataset", "there", "says"),
    [
        ("csv", "points.xlsx", "but points.xlsx: save it as CSV"),
        ("cvat", "task.zip", "but task.zip: unpack it"),
        ("cvat", "instances.json", "but instances.json: COCO's is --dataset coco"),
        ("csv", "annotations.xml", "but annotations.xml: CVAT's is --dataset cvat"),
        ("coco", "points.csv", "but points.csv: a table of points is --dataset csv"),
        ("csv", "test.csv", "test.csv is called after another split"),
        ("csv", "annotations/result.json", "but result.json: COCO's is --dataset coco"),
        ("yolo", "task.zip", "but task.zip: unpack it"),
    ],
)
def test_what_lies_there_instead_is_named_with_what_to_do(dataset: str, there: str, says: str, tmp_path: Path) -> None:
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("")
    with pytest.raises(DataError) as refusal:
        load(dataset, tmp_path)
    assert says in str(refusal.value)


def test_a_list_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.list").write_text("images/a.png a\0.txt\n")
    with pytest.raises(DataError, match="by a name that no file can have"):
        load("list", tmp_path)
