"""`uepnet prelabel` and `uepnet suggest`: proposals that tools import, and the pictures to label next."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.toy import toy_artifact, toy_model

from uepnet.cli import main
from uepnet.model.artifact import Artifact, Calibration
from uepnet.training.data.dataset import load
from uepnet.training.data.near_copies import print_of
from uepnet.training.data.seen import KEY, digest
from uepnet.training.suggest import Candidate, choose

WHITE = {"0.png": 0, "1.png": 2, "2.png": 3}  # white cells in each picture: five people each


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures with white cells, in a folder and a folder in it, and a model that counts white cells."""
    monkeypatch.chdir(tmp_path)
    range_ = Calibration(level=0.9, low=-1, high=1, offset=1, power=0.5, images=30)
    toy_model(tmp_path / "model", "expectation", calibration=range_)
    for (name, cells), folder in zip(WHITE.items(), ("in", "in", "in/night"), strict=True):
        pixels = np.zeros((64, 96, 3), np.uint8)
        for cell in range(cells):
            pixels[8 * cell : 8 * cell + 8, 16 * cell : 16 * cell + 8] = 255
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    return tmp_path


@pytest.mark.parametrize("format_name", ["csv", "coco", "cvat"])
def test_as_many_points_as_people_are_proposed_where_they_are(format_name: str, place: Path) -> None:
    suffix = {"csv": "csv", "coco": "json", "cvat": "xml"}[format_name]
    out = f"in/proposed.{suffix}"
    assert main(["prelabel", "in", "--format", format_name, "--out", out, "--model", "model", "--quiet"]) == 0
    samples = load(format_name, place / "in")
    assert [(sample.name, len(sample.points)) for sample in samples] == [
        ("0.png", 0),
        ("1.png", 10),
        ("night/2.png", 15),
    ]
    for sample in samples[1:]:
        pixels = np.asarray(Image.open(sample.image))
        columns, rows = sample.points.astype(int).T
        assert (pixels[rows, columns] == 255).all()


def test_tasks_for_label_studio_name_the_pictures_by_address(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["prelabel", "in", "--format", "label-studio", "--model", "model", "--label", "Kopf"]
    assert main([*line, "--out", "-", "--address", "http://pictures/"]) == 0
    printed = capfd.readouterr()
    tasks = json.loads(printed.out)
    assert [task["data"]["image"] for task in tasks] == [
        "http://pictures/0.png", "http://pictures/1.png", "http://pictures/night/2.png",
    ]  # fmt: skip
    assert {tuple(r["value"]["keypointlabels"]) for r in tasks[2]["predictions"][0]["result"]} == {("Kopf",)}
    assert "25 points in 3 pictures" in printed.err and "Correct them first" in printed.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("prelabel in --format csv --out old.csv", "old.csv exists"),
        ("prelabel in --format csv --out in/0.png --overwrite", "is an input"),
        ("prelabel in --format csv --out new.xml", "must end in .csv"),
        ("prelabel in --format csv --out nowhere/new.csv", "there is no folder"),
        ("prelabel nowhere --format csv --out new.csv", "nowhere does not exist"),
        ("prelabel empty --format csv --out new.csv", "no images in empty"),
        ("prelabel - --format csv --out new.csv", "no file name"),
        ("prelabel in in --format csv --out new.csv", "Two pictures are called 0.png"),
        ("prelabel in --format csv --out new.csv --label=", "--label must not be empty"),
        ("prelabel in --format csv --out new.csv --address x", "works with --format label-studio"),
        ("prelabel odd --format cvat --out new.xml", "cannot hold: rename the picture"),
        ("suggest nowhere", "nowhere does not exist"),
        ("suggest in --out gallery.png", "must end in .html"),
        ("suggest in --out old.html", "old.html exists"),
        ("suggest in --copy model", "exists and is not empty"),
        ("suggest in --copy in/next", "which is searched"),
    ],
)
def test_wrong_input_is_one_sentence_and_changes_nothing(
    line: str, says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "empty").mkdir()
    (place / "odd").mkdir()
    (place / "odd" / "bell\a.png").touch()
    for name in ("old.csv", "old.html"):
        (place / name).write_text("mine")
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    if says == "is an input":
        line = line.replace("in/0.png", "in/night/2.csv")
        (place / "in/night/2.csv").symlink_to(place / "in/0.png")
    assert main([*line.split(), "--model", "model"]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before


def test_a_picture_that_cannot_be_read_is_reported_and_the_others_are_proposed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "in" / "0.png").write_bytes(b"no picture")
    assert main(["prelabel", "in", "--format", "csv", "--out", "in/p.csv", "--model", "model", "--quiet"]) == 1
    assert "0.png" in capsys.readouterr().err
    assert [len(sample.points) for sample in load("csv", place / "in")] == [10, 15]


def test_where_no_picture_can_be_read_no_file_is_written(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "in" / "0.png").write_bytes(b"no picture")
    assert main(["prelabel", "in/0.png", "--format", "csv", "--out", "p.csv", "--model", "model"]) == 1
    assert "nothing is written" in capsys.readouterr().err
    assert not Path("p.csv").exists()


def candidate(name: str, seed: int, **changes: object) -> Candidate:
    pixels = np.random.default_rng(seed).integers(0, 255, (32, 32, 3), np.uint8)
    made = Candidate(name, Path(name), 10.0, (8.0, 12.0), 0.9, False, 0.1, print_of(pixels))
    return replace(made, **changes)  # type: ignore[arg-type]


def test_strangers_come_first_then_wide_ranges_and_near_copies_not_at_all() -> None:
    known = [
        candidate("narrow", 1, range=(9.5, 10.5)),
        candidate("wide", 2, range=(2.0, 20.0)),
        candidate("copy of wide", 2, range=(2.0, 19.0)),
        candidate("strange", 3, unfamiliar=True, familiarity=0.3),
        candidate("stranger", 4, unfamiliar=True, familiarity=0.1),
    ]
    names = [one.name for one in choose(known, 4, toy_artifact("expectation"))]
    assert names == ["stranger", "strange", "wide", "narrow"]
    assert [one.name for one in choose(known, 3, toy_artifact("expectation"))] == names[:3]


def test_where_the_range_ignores_doubt_it_decides_between_equal_ranges() -> None:
    sure, unsure = candidate("sure", 1, doubt=0.1), candidate("unsure", 2, doubt=0.4)
    assert [one.name for one in choose([sure, unsure], 2, toy_artifact("expectation"))] == ["unsure", "sure"]


def test_suggestions_leave_out_what_the_model_was_trained_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = Artifact.load(place / "model")
    artifact.model_copy(update={"training": {KEY: [digest(place / "in" / "1.png")]}}).save(place / "model")
    line = ["suggest", "in", "--model", "model", "--out", "next.html", "--copy", "to-label", "--json"]
    assert main(line) == 0
    printed = capsys.readouterr()
    assert [Path(one["path"]).name for one in json.loads(printed.out)] == ["2.png", "0.png"]
    assert "left out because the model was trained on them: 1." in printed.err
    copied = {path.relative_to(place / "to-label").as_posix(): path for path in (place / "to-label").rglob("*.png")}
    assert copied.keys() == {"0.png", "night/2.png"}
    assert copied["night/2.png"].read_bytes() == (place / "in/night/2.png").read_bytes()
    page = (place / "next.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 4 and "http" not in page and "<script" not in page
    assert main(["suggest", "in", "--model", "model", "--quiet"]) == 0
    assert "wide range" in capsys.readouterr().out
