import json
import shutil
import tracemalloc
from pathlib import Path

import pytest
from PIL import Image
from support import releases
from support.releases import RELEASES

from uepnet.cli import main
from uepnet.training.data.dataset_check import BROKEN, Finding, Report, check


def kinds(report: Report) -> dict[str, list[str]]:
    """kind -> the items it was found in."""
    found: dict[str, list[str]] = {}
    for finding in report.findings:
        found.setdefault(finding.kind, []).append(Path(finding.item).name)
    return found


@pytest.mark.parametrize("dataset", RELEASES)
def test_a_sound_release_has_nothing_broken_and_nothing_left_over(dataset: str, tmp_path: Path) -> None:
    truth = RELEASES[dataset](tmp_path)
    report = check(dataset, tmp_path)
    assert report.images == len(truth["train"]) == sum(report.sizes.values())
    assert sorted(report.counts) == sorted(len(points) for points in truth["train"].values())
    assumed = {"assumed"} if dataset == "coco" else set()  # its dog is not counted, and that is said
    assert set(kinds(report)) <= {"empty", "duplicate_points", "few_pictures", "too_few"} | assumed
    assert report.broken == 0


def test_every_sin_is_listed_and_none_stops_the_check(tmp_path: Path) -> None:
    for number in range(9):
        releases.picture(tmp_path / "train" / "images" / f"{number}.jpg", number)
        releases.text(tmp_path / "train" / "gt" / f"{number}.txt", releases.crowd(number, 1) - 0.5)
    images, truths = tmp_path / "train" / "images", tmp_path / "train" / "gt"
    (truths / "0.txt").unlink()
    (truths / "1.txt").write_text("head at the left\n")
    (images / "2.jpg").write_bytes((images / "2.jpg").read_bytes()[:900])
    (images / "3.jpg").write_text("no picture")
    (truths / "4.txt").write_text("1 1\n1 1\n2 2\n500 500\n")
    (truths / "5.txt").write_text("")
    shutil.copy(images / "6.jpg", images / "7.jpg")
    (truths / "8.txt").write_text("-4 1\n1 1\n900 900\n")
    (truths / "99.txt").write_text("1 1\n")
    releases.picture(tmp_path / "test" / "images" / "0.jpg", 6)  # the picture of train's 6.jpg
    releases.text(tmp_path / "test" / "gt" / "0.txt", releases.crowd(0))

    report = check("jhu-crowd", tmp_path)

    assert kinds(report) == {
        "missing_annotation": ["0.jpg"],
        "unreadable_annotation": ["1.jpg"],
        "unreadable_image": ["2.jpg", "3.jpg"],
        "duplicate_points": ["4.jpg"],
        "points_outside": ["4.jpg"],
        "empty": ["5.jpg"],
        "duplicate_image": ["7.jpg"],
        "misfit": ["8.jpg"],
        "shared_image": ["6.jpg"],
        "lone_annotation": ["99.txt"],
        "few_pictures": ["split train"],
    }
    assert report.broken == 5
    assert (report.points_outside, report.duplicate_points) == (3, 1)
    shared = next(finding for finding in report.findings if finding.kind == "shared_image")
    assert shared.text == "is 0.jpg of the test split"


def test_pictures_that_no_row_names_are_listed_and_rows_without_a_picture_are_broken(tmp_path: Path) -> None:
    releases.table(tmp_path)
    releases.picture(tmp_path / "images" / "forgotten.png")
    with (tmp_path / "points.csv").open("a") as file:
        file.write("gone.png,1,2\n")
    report = check("csv", tmp_path)
    found = kinds(report)
    assert found["unlisted_image"] == ["forgotten.png"]
    assert found["missing_image"] == ["gone.png"]


def test_people_of_an_image_that_coco_does_not_list_are_found(tmp_path: Path) -> None:
    releases.coco(tmp_path)
    path = tmp_path / "annotations" / "instances_train.json"
    content = json.loads(path.read_text())
    content["annotations"].append({"image_id": 77, "category_id": 1, "bbox": [1, 1, 2, 2]})
    path.write_text(json.dumps(content))
    assert kinds(check("coco", tmp_path))["missing_image"] == ["image 77"]


def test_points_are_checked_against_the_upright_frame(tmp_path: Path) -> None:
    # Stored 96 x 64, shown 64 x 96: a point at y = 90 is inside, a point at x = 90 was annotated on the stored one.
    for name in ("upright", "stored", "both"):
        releases.picture(tmp_path / f"{name}.jpg", seed=len(name), orientation=6)
    rows = [
        "image,x,y",
        "upright.jpg,10,90",
        "stored.jpg,90,10",
        "stored.jpg,10,10",
        "stored.jpg,20,10",
        "both.jpg,9,9",
    ]
    (tmp_path / "points.csv").write_text("\n".join(rows))
    report = check("csv", tmp_path)
    assert kinds(report) == {"misfit": ["stored.jpg"], "too_few": ["split train"]}
    assert report.sizes == {(64, 96): 3}
    assert "they fit 96 x 64, the frame as stored" in report.findings[0].text


def test_photographs_that_training_leaves_out_are_said_to_be(tmp_path: Path) -> None:
    releases.shanghaitech("A")(tmp_path)
    part = tmp_path / "part_A_final"
    shutil.copy(part / "train_data/images/IMG_2.jpg", part / "test_data/images/IMG_1.jpg")
    (finding,) = (finding for finding in check("shanghaitech-a", tmp_path).findings if finding.kind == "shared_image")
    assert finding.text == "is IMG_1.jpg of the test split; training leaves it out"


def test_a_copy_with_other_metadata_is_the_same_picture(tmp_path: Path) -> None:
    releases.table(tmp_path)
    first, last = tmp_path / "images" / "0.png", tmp_path / "images" / "2.png"
    with Image.open(first) as image:
        image.save(last, dpi=(300, 300))
    assert first.read_bytes() != last.read_bytes()
    assert kinds(check("csv", tmp_path))["duplicate_image"] == ["2.png"]


def test_a_fold_is_checked_by_itself(tmp_path: Path) -> None:
    releases.ucf_cc_50(tmp_path)
    assert check("ucf-cc-50", tmp_path, "test", fold=2).images == 10


def test_progress_counts_every_picture_that_is_read(tmp_path: Path) -> None:
    releases.ucf_qnrf(tmp_path)
    seen: list[tuple[int, int]] = []
    check("ucf-qnrf", tmp_path, watch=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    size, images = (640, 480), 24
    for number in range(images):
        releases.picture(tmp_path / "images" / f"{number}.jpg", number, size)
    (tmp_path / "points.csv").write_text("\n".join(["image,x,y", *(f"{number}.jpg,1,1" for number in range(images))]))
    check("csv", tmp_path)  # what is imported and cached on first use is no growth
    tracemalloc.start()
    try:
        check("csv", tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * size[0] * size[1] * 3


# The command


def test_the_command_prints_statistics_and_ends_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    releases.table(tmp_path, images=6)
    assert main(["data", "check", "--dataset", "csv", "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "All 6 images can be used." in out
    assert "0 to 5" in out and "96 x 64 (6)" in out


def test_the_command_names_what_is_broken_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    releases.table(tmp_path)
    (tmp_path / "images" / "1.png").unlink()
    assert main(["data", "check", "--dataset", "csv", "--root", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "1 of 3 images are broken" in out and "broken 1.png" in out


def test_the_command_s_json_holds_every_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    releases.table(tmp_path)
    (tmp_path / "images" / "1.png").write_bytes(b"")
    assert main(["data", "check", "--dataset", "csv", "--root", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["images"], report["people"], report["broken"]) == (3, 3, 1)
    assert report["count"] == {"min": 0, "median": 1.0, "mean": 1.0, "max": 2}
    assert {finding["kind"] for finding in report["findings"] if finding["broken"]} == {"unreadable_image", "too_few"}
    assert report["sizes"] == {"96x64": 2}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dataset", "nonsense", "--root", "."],
        ["--dataset", "csv", "--root", "nowhere"],
        ["--dataset", "ucf-cc-50", "--root", ".", "--split", "test", "--fold", "9"],
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "check", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("uepnet: ") and captured.err.count("\n") == 1


def test_splits_lists_what_is_held_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    releases.table(tmp_path, images=32)
    assert main(["data", "splits", "--dataset", "csv", "--root", str(tmp_path)]) == 0
    groups = json.loads(capsys.readouterr().out)
    held = {group: len(names) for group, names in groups.items()}
    assert held == {"val": 2, "calibration": 4, "check": 0, "left_out": 0}


def test_one_broken_image_counts_once_however_much_is_wrong_with_it() -> None:
    report = Report("csv", "train", images=2)
    report.findings = [Finding(kind, "a.jpg", "is wrong") for kind in BROKEN if kind != "wrong_units"]
    assert report.broken == 1
    assert report.as_json()["people"] == 0
