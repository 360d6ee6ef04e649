"""CVAT, Label Studio, YOLO, COCO and CSV as people have them: read, or refused in one sentence that helps."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import releases

from uepnet.model.errors import DataError
from uepnet.training.data.dataset import Sample, load

WIDTH, HEIGHT = releases.SIZE


def cvat_file(folder: Path, shapes: str, name: str = "a.png", size: tuple[int, int] = releases.SIZE) -> Path:
    path = folder / "annotations.xml"
    image = f'<image id="0" name="{name}" width="{size[0]}" height="{size[1]}">{shapes}</image>'
    path.write_text(f"<annotations><version>1.1</version>{image}</annotations>")
    return path


def tasks_file(folder: Path, *values: dict[str, object], **task: object) -> Path:
    result = [{"original_width": WIDTH, "original_height": HEIGHT, "value": value} for value in values]
    whole = {"data": {"image": "a.png"}, "annotations": [{"result": result}], **task}
    path = folder / "export.json"
    path.write_text(json.dumps([whole]))
    return path


def coco_file(folder: Path, labels: list[str], used: list[int], **content: object) -> Path:
    annotations = [{"image_id": 1, "category_id": number, "bbox": [number, 0, 2, 2]} for number in used]
    categories = [{"id": number, "name": label} for number, label in enumerate(labels)]
    whole = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": annotations, "categories": categories}
    path = folder / "result.json"
    path.write_text(json.dumps(whole | content))
    return path


def only(dataset: str, root: Path) -> Sample:
    (sample,) = load(dataset, root)
    return sample


# CVAT


def test_every_shape_of_cvat_is_a_person_at_its_centre(tmp_path: Path) -> None:
    releases.picture(tmp_path / "a.png")
    cvat_file(
        tmp_path,
        '<points label="head" points="1.5,2.5;3.0,4.0"/><box label="head" xtl="10" ytl="10" xbr="20" ybr="30"/>'
        '<ellipse label="head" cx="5" cy="6" rx="2" ry="3"/><polygon label="head" points="0,0;8,0;8,4;0,4"/>'
        '<mask label="head" rle="1" left="20" top="30" width="4" height="6"/>'
        '<skeleton label="head"><points label="nose" outside="1" points="9,9"/>'
        '<points label="eye" outside="0" points="7,8"/></skeleton>',
    )
    points = only("cvat", tmp_path).points.tolist()
    assert points == [[1.5, 2.5], [3, 4], [15, 20], [5, 6], [4, 2], [22, 33], [7, 8]]


def test_points_follow_a_picture_that_was_made_smaller_and_no_picture_of_another_shape(tmp_path: Path) -> None:
    releases.picture(tmp_path / "a.png")
    cvat_file(tmp_path, '<points label="head" points="192,128"/>', size=(10 * WIDTH, 10 * HEIGHT))
    assert only("cvat", tmp_path).points == pytest.approx(np.array([[19.2, 12.8]]))
    cvat_file(tmp_path, '<points label="head" points="1,1"/>', size=(HEIGHT, WIDTH))
    with pytest.raises(DataError, match="another picture, or was turned"):
        _ = only("cvat", tmp_path).points


BOMB = '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;">]><annotations>&y;</annotations>'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (BOMB, "document type declaration"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotations/>', "document type declaration"),
        ("<annotations><track id='0'><box frame='0'/></track></annotations>", "CVAT for video"),
        ("<annotation><object/></annotation>", "first element is annotation,"),
        ("<annotations><image", "not valid XML"),
        ("<annotations><image id='0'/></annotations>", "image without a name"),
        ("<annotations><image name='a.png'/></annotations>", "not one shape"),
        ("<annotations>" + "<a>" * 40 + "</a>" * 40 + "</annotations>", "nests its elements"),
        ("<annotations><image name='a'/><image name='a'/></annotations>", "lists the image a twice"),
    ],
)
def test_a_file_that_is_not_cvat_for_images_says_what_it_is(content: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    path.write_text(content)
    with pytest.raises(DataError, match=says) as refusal:
        load("cvat", tmp_path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize(
    "shape", ['<box label="a" xtl="1"/>', '<points label="a" points="1;2"/>', '<ellipse label="a"/>']
)
def test_a_broken_shape_spoils_its_own_picture_alone(shape: str, tmp_path: Path) -> None:
    cvat_file(tmp_path, shape)
    with pytest.raises(DataError, match=r"a\.png has a <"):
        _ = only("cvat", tmp_path).points


def test_a_zip_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    releases.cvat(tmp_path / "task")
    archive = shutil.make_archive(str(tmp_path / "task"), "zip", tmp_path / "task")
    with pytest.raises(DataError, match="unpack it"):
        load("cvat", Path(archive))


# Label Studio


@given(
    x=st.floats(10, 80),
    y=st.floats(10, 80),
    width=st.floats(0.5, 9),
    height=st.floats(0.5, 9),
    turn=st.integers(0, 359),
)
def test_a_turned_rectangle_of_label_studio_keeps_its_centre(
    x: float, y: float, width: float, height: float, turn: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Turn a rectangle about its centre; its corner and angle are what Label Studio writes."""
    folder = tmp_path_factory.mktemp("tasks")
    angle = math.radians(turn)
    across, down = width * WIDTH / 200, height * HEIGHT / 200  # half the sides, in pixels
    left = x * WIDTH / 100 - (across * math.cos(angle) - down * math.sin(angle))
    top = y * HEIGHT / 100 - (across * math.sin(angle) + down * math.cos(angle))
    corner = {"x": 100 * left / WIDTH, "y": 100 * top / HEIGHT, "width": width, "height": height, "rotation": turn}
    tasks_file(folder, {**corner, "rectanglelabels": ["Head"]})
    assert only("label-studio", folder).points == pytest.approx(np.array([[x * WIDTH / 100, y * HEIGHT / 100]]))


def test_json_min_ellipses_and_polygons_are_read_too(tmp_path: Path) -> None:
    sizes = {"original_width": WIDTH, "original_height": HEIGHT}
    entry = {
        "image": "/data/upload/3/a.png",
        "id": 1,
        "kp": [{"x": 50, "y": 50, "width": 0.5, "keypointlabels": ["Person"], **sizes}],
        "el": [{"x": 25, "y": 75, "radiusX": 1, "radiusY": 2, "ellipselabels": ["Person"], **sizes}],
        "po": [{"points": [[0, 0], [10, 0], [10, 10]], "polygonlabels": ["Person"], **sizes}],
    }
    (tmp_path / "min.json").write_text(json.dumps([entry]))
    assert only("label-studio", tmp_path).points == pytest.approx(np.array([[48, 32], [24, 48], [4.8, 3.2]]))


def test_a_task_that_nobody_submitted_is_left_out_with_a_note_and_an_empty_one_has_nobody(tmp_path: Path) -> None:
    tasks = [
        {"data": {"image": "a.png"}, "annotations": [{"result": [], "was_cancelled": False}]},
        {"data": {"image": "b.png"}, "annotations": []},
        {"data": {"image": "c.png"}, "annotations": [{"result": [], "was_cancelled": True}]},
    ]
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    sample = only("label-studio", tmp_path)
    assert (sample.name, len(sample.points)) == ("a.png", 0)
    assert sample.notes == ("2 of 3 tasks have no submitted annotation: left out",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"images": []}, "not a Label Studio export"),
        ([{"data": {}, "annotations": []}], "not a Label Studio export"),
        ([3], "not a Label Studio export"),
        ([{"data": {"image": "a.png"}, "annotations": []}], "no submitted annotation"),
    ],
)
def test_what_is_no_label_studio_export_is_refused(content: object, says: str, tmp_path: Path) -> None:
    (tmp_path / "export.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=says):
        load("label-studio", tmp_path)


@pytest.mark.parametrize("value", [{"x": "a", "y": 1}, {"x": 1}, {"x": None, "y": 2}])
def test_a_region_without_a_place_spoils_its_picture(value: dict[str, object], tmp_path: Path) -> None:
    tasks_file(tmp_path, {**value, "keypointlabels": ["Head"]})
    with pytest.raises(DataError, match="without usable x and y"):
        _ = only("label-studio", tmp_path).points


# YOLO


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


# Labels


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


def test_coco_without_an_annotation_says_why_cvat_s_points_are_missing(tmp_path: Path) -> None:
    coco_file(tmp_path, ["head"], [])
    with pytest.raises(DataError, match="CVAT leaves points without a skeleton out"):
        load("coco", tmp_path)


# Tables and encodings


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252"]
)
def test_a_table_is_read_in_the_encodings_that_spreadsheets_write(encoding: str, tmp_path: Path) -> None:
    releases.picture(tmp_path / "Fußgänger.png")
    (tmp_path / "points.csv").write_bytes("image;x;y\nFußgänger.png;1;2\n".encode(encoding))
    sample = only("csv", tmp_path)
    assert sample.image.is_file()
    assert sample.points.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "header", ['"image","x","y"', "filename,x,y", "File_Name;X;Y", "path,x_px,y_px", '"Image", "x [px]", "y [px]"']
)
def test_columns_may_be_quoted_and_called_otherwise(header: str, tmp_path: Path) -> None:
    separator = ";" if ";" in header else ","
    (tmp_path / "points.csv").write_text(f"{header}\n" + separator.join(["a b.png", "1", "2"]) + "\n")
    assert only("csv", tmp_path).points.tolist() == [[1, 2]]


def test_decimal_commas_are_explained(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("image;x;y\na.png;412,5;96,25\n")
    with pytest.raises(DataError, match=r"412,5 has a decimal comma: write 412\.5"):
        _ = only("csv", tmp_path).points
    (tmp_path / "points.csv").write_text("image,x,y\na.png,412,5,96,25\n")
    with pytest.raises(DataError, match="5 fields under 3 columns"):
        load("csv", tmp_path)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", b"\xff\xfea"])
def test_what_is_no_text_is_refused_with_the_encodings_that_are_read(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_bytes(content)
    with pytest.raises(DataError) as refusal:
        load("csv", tmp_path)
    assert "UTF-16" in str(refusal.value) or "columns image, x and y" in str(refusal.value)


# Names


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


# What nobody expects


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


def test_a_cvat_image_without_a_size_is_taken_as_it_is(tmp_path: Path) -> None:
    releases.picture(tmp_path / "a.png")
    cvat_file(tmp_path, '<points label="head" points="3,4"/>', size=(0, 0))
    assert only("cvat", tmp_path).points.tolist() == [[3, 4]]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'<?xml version="1.0" encoding="klingon"?><annotations/>', "names an encoding that is not known"),
        ("<annotations><image name='Br\u00fccke.png'/></annotations>".encode("latin-1"), "its text is not UTF-8"),
    ],
)
def test_xml_in_another_encoding_than_it_says_is_explained(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "annotations.xml").write_bytes(content)
    with pytest.raises(DataError, match=says):
        load("cvat", tmp_path)


@pytest.mark.parametrize("name", ["a\0b.png", "x" * 300 + ".png", "\ud800.png", "d/" * 2000 + "a.png"])
def test_a_name_that_no_file_can_have_is_refused(name: str, tmp_path: Path) -> None:
    coco_images(tmp_path, {"id": 1, "file_name": name})
    with pytest.raises(DataError, match="by a name that no file can have"):
        load("coco", tmp_path)


def test_a_list_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.list").write_text("images/a.png a\0.txt\n")
    with pytest.raises(DataError, match="by a name that no file can have"):
        load("list", tmp_path)


def test_numbers_of_thousands_of_digits_are_refused_briefly(tmp_path: Path) -> None:
    for digits in (400, 5000):
        (tmp_path / "a.json").write_text('{"images": [{"id": ' + "9" * digits + "}]}")
        with pytest.raises(DataError, match="numbers too long"):
            load("coco", tmp_path)
    (tmp_path / "points.csv").write_text(f"image,x,y\na.png,{'9' * 5000},1\n")
    with pytest.raises(DataError) as refusal:
        _ = only("csv", tmp_path).points
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ('a.png,1,2\n"a.png,3,4\na.png,5,6\n', "unexpected end of data"),
        ('a.png,1,2\n"a.png,3,4\na.png"\n', "a quotation mark that is not closed"),
    ],
)
def test_a_quotation_mark_that_is_not_closed_swallows_no_rows(rows: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("image,x,y\n" + rows)
    with pytest.raises(DataError, match=says):
        load("csv", tmp_path)


def test_a_guessed_encoding_is_noted(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_bytes("image,x,y\nBr\u00fccke.png,1,2\n".encode("cp1252"))
    assert "read as Windows-1252" in only("csv", tmp_path).notes[0]


def test_answers_about_a_whole_picture_are_no_people_and_a_turned_picture_is_refused(tmp_path: Path) -> None:
    releases.picture(tmp_path / "a.png")
    point = {"value": {"x": 50, "y": 50, "width": 1}, "original_width": WIDTH, "original_height": HEIGHT}
    weather = {"type": "choices", "value": {"choices": ["rain"]}}
    task = {"data": {"image": "a.png"}, "annotations": [{"result": [weather, point]}]}
    (tmp_path / "export.json").write_text(json.dumps([task]))
    assert only("label-studio", tmp_path).points.tolist() == [[WIDTH / 2, HEIGHT / 2]]
    point["image_rotation"] = 90
    (tmp_path / "export.json").write_text(json.dumps([task]))
    with pytest.raises(DataError, match="turned in Label Studio"):
        _ = only("label-studio", tmp_path).points
    point["value"] = 7
    (tmp_path / "export.json").write_text(json.dumps([task]))
    with pytest.raises(DataError, match="is not a Label Studio export"):
        load("label-studio", tmp_path)


def test_yolo_s_picture_of_another_case_is_noted_and_its_class_names_are_short(tmp_path: Path) -> None:
    releases.picture(tmp_path / "images" / "FRAME.png")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "frame.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    sample = only("yolo", tmp_path)
    assert sample.image.name == "FRAME.png" and "is listed as frame" in sample.notes[0]
    (tmp_path / "data.yaml").write_text("a: &a [x, x]\nnames: [*a]\n")
    with pytest.raises(DataError, match="is not YAML with a list `names`"):
        load("yolo", tmp_path)
