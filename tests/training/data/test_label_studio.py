"""Label Studio's exports: every shape is read, or refused in one sentence that helps."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import releases
from support.releases import only

from uepnet.model.errors import DataError
from uepnet.training.data.dataset import load

WIDTH, HEIGHT = releases.SIZE


def tasks_file(folder: Path, *values: dict[str, object], **task: object) -> Path:
    result = [{"original_width": WIDTH, "original_height": HEIGHT, "value": value} for value in values]
    whole = {"data": {"image": "a.png"}, "annotations": [{"result": result}], **task}
    path = folder / "export.json"
    path.write_text(json.dumps([whole]))
    return path


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
