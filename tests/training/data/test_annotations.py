"""Annotations that are odd or broken: one sentence that names the file, never a crash."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from support import releases

from uepnet.model.errors import DataError
from uepnet.training.data.annotations import ZERO_BASED, image_info, json_points, mall_points, mat_points, text_points
from uepnet.training.data.dataset import load


def sentence(refusal: pytest.ExceptionInfo[DataError], path: Path) -> bool:
    text = str(refusal.value)
    return str(path) in text and text.endswith(".")


# MATLAB files


@pytest.mark.parametrize("compressed", [True, False])
def test_a_damaged_mat_file_is_refused_or_read_but_never_ends_the_process(compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "1_ann.mat"
    savemat(path, {"annPoints": releases.crowd(1, 30)}, do_compression=compressed)
    whole = path.read_bytes()
    rng = random.Random(3)
    refused = 0
    for trial in range(300):
        data = bytearray(whole)
        if trial % 3 == 0:
            data = data[: rng.randrange(len(data))]
        elif trial % 3 == 1:
            start = rng.randrange(len(data))
            data[start:] = bytes(len(data) - start)
        else:
            data[rng.randrange(128, len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            mat_points(path, "annPoints")
        except DataError as error:
            assert str(path) in str(error)
            refused += 1
    # An uncompressed file has no checksum: flipped bits may be other coordinates.
    assert refused > (280 if compressed else 120)


@pytest.mark.parametrize("content", [b"", b"not MATLAB", b"\x00" * 400, b"\x89HDF\r\n\x1a\n" + b"\x00" * 600])
def test_what_is_no_mat_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "GT_IMG_1.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged or no MATLAB file") as refusal:
        image_info(path)
    assert sentence(refusal, path)


def test_a_mat_file_without_the_points_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "1_ann.mat"
    savemat(path, {"other": np.zeros((3, 2))})
    with pytest.raises(DataError, match="no annPoints"):
        mat_points(path, "annPoints")
    with pytest.raises(DataError, match="no image_info"):
        image_info(path)
    with pytest.raises(DataError, match="no frames"):
        mall_points(path, 1)


@pytest.mark.parametrize(
    "values", [np.zeros((3, 1)), np.full((2, 2), np.nan), np.array([["a", "b"]], dtype=object), np.zeros((2, 2, 2))]
)
def test_values_that_are_no_points_are_refused(values: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "1_ann.mat"
    savemat(path, {"annPoints": values})
    with pytest.raises(DataError, match="rows of x and y") as refusal:
        mat_points(path, "annPoints")
    assert sentence(refusal, path)


def test_an_empty_matrix_is_an_image_with_nobody(tmp_path: Path) -> None:
    path = tmp_path / "1_ann.mat"
    savemat(path, {"annPoints": np.zeros((0, 0))})
    assert mat_points(path, "annPoints").shape == (0, 2)


# Text and JSON


def test_text_may_have_blank_lines_commas_and_more_columns(tmp_path: Path) -> None:
    path = tmp_path / "1.txt"
    path.write_text("1 2 30 40 0 1\n\n3.5,4\n  \n")
    assert text_points(path, ZERO_BASED).tolist() == [[1.5, 2.5], [4.0, 4.5]]
    path.write_text("")
    assert text_points(path, ZERO_BASED).shape == (0, 2)


@pytest.mark.parametrize("content", [b"1\n", b"x y\n", b"1 nan\n", b"\xff\xfe\x00\x01"])
def test_text_without_numbers_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "1.txt"
    path.write_bytes(content)
    with pytest.raises(DataError) as refusal:
        text_points(path, ZERO_BASED)
    assert sentence(refusal, path)


@pytest.mark.parametrize("content", ["", "[1, 2]", '{"boxes": []}', '{"points": [[1]]}', '{"points": "many"}'])
def test_json_without_points_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    path.write_text(content)
    with pytest.raises(DataError) as refusal:
        json_points(path)
    assert sentence(refusal, path)


def test_a_missing_annotation_is_named_when_its_points_are_read(tmp_path: Path) -> None:
    releases.jhu_crowd(tmp_path)
    path = tmp_path / "train" / "gt" / "0000.txt"
    path.unlink()
    sample = load("jhu-crowd", tmp_path)[0]
    with pytest.raises(DataError, match="missing") as refusal:
        _ = sample.points
    assert sentence(refusal, path)


# Variants of layouts


def test_nwpu_is_read_from_its_mat_files_too(tmp_path: Path) -> None:
    truth = releases.nwpu(tmp_path, mats=True)
    for split, images in truth.items():
        for sample in load("nwpu", tmp_path, split):
            assert sample.points == pytest.approx(images[sample.name])


def test_mall_is_read_as_released_too(tmp_path: Path) -> None:
    truth = releases.mall(tmp_path / "mall_dataset", released=True)
    for split, images in truth.items():
        samples = load("mall", tmp_path, split)
        assert [sample.name for sample in samples] == list(images)
        for sample in samples:
            assert sample.points == pytest.approx(images[sample.name])


def test_a_region_without_corners_is_refused(tmp_path: Path) -> None:
    releases.worldexpo10(tmp_path)
    roi = tmp_path / "train_label" / "100060" / "roi.mat"
    savemat(roi, {"maskVerticesXCoordinates": [[1.0], [2.0]], "maskVerticesYCoordinates": [[1.0], [2.0]]})
    with pytest.raises(DataError, match="three at least"):
        _ = load("worldexpo10", tmp_path)[0].points
    savemat(roi, {"other": 1})
    with pytest.raises(DataError, match="no mask vertices"):
        _ = load("worldexpo10", tmp_path)[0].points


def test_a_strange_file_among_the_fifty_is_named(tmp_path: Path) -> None:
    releases.ucf_cc_50(tmp_path)
    releases.picture(tmp_path / "holiday.jpg")
    with pytest.raises(DataError, match=r"holiday\.jpg is no image of UCF_CC_50"):
        load("ucf-cc-50", tmp_path, "test", fold=1)


# Tables


def test_a_csv_may_come_from_a_spreadsheet(tmp_path: Path) -> None:
    releases.picture(tmp_path / "shop" / "a.png")
    content = "Y;note;Image;X\r\n2.5;tall;.\\shop\\a.png;1\r\n4;;shop/a.png;3\r\n"
    (tmp_path / "people.csv").write_bytes(b"\xef\xbb\xbf" + content.encode())
    (sample,) = load("csv", tmp_path)
    assert sample.name == "shop/a.png"
    assert sample.points.tolist() == [[1.0, 2.5], [3.0, 4.0]]
    assert sample.size == releases.SIZE


def test_a_csv_row_without_numbers_spoils_its_own_image_alone(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("image,x,y\na.png,1,2\nb.png,one,2\nb.png,3,4\nc.png,1,\nd.png,nan,1\n")
    good, bad, half, nan = load("csv", tmp_path)
    assert len(good.points) == 1
    with pytest.raises(DataError, match=r"Line 3 of .*points\.csv"):
        _ = bad.points
    with pytest.raises(DataError, match="Line 5"):
        _ = half.points
    with pytest.raises(DataError, match="Line 6"):
        _ = nan.points


@pytest.mark.parametrize("content", ["", "a.png,1,2\n", "image,x\na.png,1\n", "image,x,y\n,1,2\n"])
def test_a_csv_of_another_shape_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text(content)
    with pytest.raises(DataError, match=r"points\.csv"):
        load("csv", tmp_path)


def test_a_list_may_be_the_root_itself(tmp_path: Path) -> None:
    truth = releases.listed(tmp_path)
    assert [sample.name for sample in load("list", tmp_path / "train.list")] == list(truth["train"])
    assert [sample.name for sample in load("list", tmp_path / "test.list", "test")] == list(truth["test"])


def test_a_list_that_does_not_say_so_is_never_tested_on(tmp_path: Path) -> None:
    releases.table(tmp_path, images=20)
    for root in (tmp_path, tmp_path / "points.csv"):
        with pytest.raises(DataError, match="use the split val"):
            load("csv", root, "test")
        assert load("csv", root, "val")


def test_several_lists_for_one_split_are_a_question(tmp_path: Path) -> None:
    for name in ("monday.csv", "tuesday.csv"):
        (tmp_path / name).write_text("image,x,y\na.png,1,2\n")
    with pytest.raises(DataError, match=r"monday\.csv, tuesday\.csv"):
        load("csv", tmp_path)
    assert len(load("csv", tmp_path / "monday.csv")) == 1


@pytest.mark.parametrize("name", ["festival.csv", "latest.csv", "trainstation.csv"])
def test_a_word_inside_a_word_names_no_split(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("image,x,y\na.png,1,2\n")
    assert len(load("csv", tmp_path)) == 1


def test_a_list_line_that_is_no_pair_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.list").write_text("a.jpg a.txt\n\nmy picture.jpg b.txt\n")
    with pytest.raises(DataError, match="Line 3"):
        load("list", tmp_path)


def coco_file(tmp_path: Path, **content: object) -> None:
    whole = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [], **content}
    (tmp_path / "result.json").write_text(json.dumps(whole))


def test_without_a_category_of_people_every_coco_annotation_is_one(tmp_path: Path) -> None:
    coco_file(
        tmp_path,
        annotations=[
            {"image_id": 1, "category_id": 5, "point": [4, 5]},
            {"image_id": 1, "category_id": 5, "bbox": [0, 0, 10, 20]},
            {"image_id": 1, "category_id": 5, "bbox": [0, 0, 90, 90], "iscrowd": 1},
        ],
        categories=[{"id": 5, "name": "visitor"}],
    )
    (sample,) = load("coco", tmp_path)
    assert sample.points.tolist() == [[4.5, 5.5], [5.0, 10.0]]


@pytest.mark.parametrize("annotation", [{}, {"bbox": [1, 2]}, {"keypoints": [1, 2]}, {"bbox": [1, 2, "a", 3]}])
def test_a_coco_annotation_without_a_place_spoils_its_image(annotation: dict[str, object], tmp_path: Path) -> None:
    coco_file(tmp_path, annotations=[{"image_id": 1, **annotation}])
    with pytest.raises(DataError, match="without usable keypoints, point, bbox"):
        _ = load("coco", tmp_path)[0].points


@pytest.mark.parametrize("content", [[], {}, {"images": [{}]}, {"annotations": [{}]}, {"annotations": 3}])
def test_json_that_is_not_coco_is_refused(content: object, tmp_path: Path) -> None:
    if isinstance(content, dict) and content:
        coco_file(tmp_path, **content)
    else:
        (tmp_path / "result.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="is not COCO"):
        load("coco", tmp_path)
