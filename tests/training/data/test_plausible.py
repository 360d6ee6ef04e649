"""The check sees labels that are no pixels, that are mirrored or swapped, and frames that are nearly copies."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.scenes import crowd

from uepnet.cli import main
from uepnet.model.errors import DataError
from uepnet.training.data.contact_sheet import WIDTH, contact_sheet
from uepnet.training.data.dataset import load
from uepnet.training.data.dataset_check import check, refuse_broken
from uepnet.training.data.near_copies import ALIKE, print_of, share_alike, spread_over
from uepnet.training.data.plausible import WAYS, Labels, better_way, units
from uepnet.training.data.synthetic import crowd as drawn_crowd

SIZE = (640, 480)


def people(seed: int, number: int = 30) -> np.ndarray:
    """Most of them at the left, and below the middle: a turned or scaled crowd stands elsewhere."""
    return np.random.default_rng(seed).beta((2, 8), (9, 4), (number, 2)) * SIZE


def density(points: np.ndarray, rows: int = 60, columns: int = 80) -> np.ndarray:
    """A count map that agrees with the points."""
    return np.histogram2d(points[:, 1], points[:, 0], (rows, columns), ((0, SIZE[1]), (0, SIZE[0])))[0]


def many(change: float | np.ndarray, number: int = 4) -> list[Labels]:
    return [Labels(str(seed), people(seed) * change, SIZE) for seed in range(number)]


def test_fractions_percent_and_swapped_axes_are_told_from_pixels() -> None:
    assert units(many(1.0)) is None
    assert "fractions" in str(units(many(1 / np.array(SIZE))))
    full = [Labels("a", np.random.default_rng(0).uniform(0, 100, (80, 2)), SIZE)]
    assert "percent" in str(units(full))
    swapped = [Labels("a", np.random.default_rng(0).uniform((0, 0), SIZE, (80, 2))[:, ::-1], SIZE)]
    assert "swapped" in str(units(swapped))
    assert units([Labels("a", people(0, 3) / 640, SIZE)]) is None  # three people say nothing
    assert "upper left corner" in str(units(many(1 / 100)))  # fractions that were read as percent
    assert units(many(-1.0)) is None  # far outside: every picture says so


@pytest.mark.parametrize("way", WAYS)
def test_labels_that_fit_when_they_are_turned_are_found(way: str) -> None:
    right = many(1.0)
    seen = [density(one.points) for one in right]
    assert better_way(right, seen) is None
    inverse = {"half of the right coordinates": "twice the right coordinates"}.get(
        way, "half of the right coordinates" if way == "twice the right coordinates" else way
    )
    wrong = [Labels(one.name, WAYS[inverse](one.points / SIZE) * SIZE, SIZE) for one in right]
    assert better_way(wrong, seen) == way


def test_labels_that_a_blind_model_cannot_judge_are_left_alone() -> None:
    assert better_way(many(1.0), [np.zeros((60, 80))] * 4) is None
    noise = np.random.default_rng(0)
    assert better_way(many(1.0), [noise.uniform(0, 1, (60, 80)) for _ in range(4)]) is None


def video(root: Path, frames: int = 12, mirrored: bool = False) -> Path:
    """Frames of one drawn crowd in which hardly anything moves."""
    (root / "images").mkdir(parents=True)
    picture, points = drawn_crowd(np.random.default_rng(3), 320, 240, 8)
    rows = ["image,x,y"]
    for frame in range(frames):
        noisy = np.clip(picture + np.random.default_rng(frame).normal(0, 3, picture.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(root / "images" / f"{frame:03}.png")
        rows += [f"{frame:03}.png,{320 - x if mirrored else x:.1f},{y:.1f}" for x, y in points]
    (root / "train.csv").write_text("\n".join(rows))
    return root


def test_frames_of_one_video_and_their_neighbours_in_another_split_are_listed(tmp_path: Path) -> None:
    root = video(tmp_path / "camera")
    lines = (root / "train.csv").read_text().splitlines()
    test = [line for line in lines if line.startswith("011")]
    (root / "train.csv").write_text("\n".join(line for line in lines if line not in test))
    (root / "test.csv").write_text("\n".join([lines[0], *test]))
    findings = {finding.kind: finding for finding in check("csv", root).findings}
    assert "11 of" not in findings["video_frames"].text and "100% of the pictures" in findings["video_frames"].text
    assert findings["near_copies"].item == "011.png"
    assert not findings["near_copies"].broken


def test_frames_that_are_dealt_out_to_two_splits_are_found_by_their_neighbours() -> None:
    rng = np.random.default_rng(0)
    place = rng.normal(0, 1, 576)
    walk = np.cumsum(rng.normal(0, 0.12, (40, 576)), axis=0)  # people who move: frames drift apart
    looks = [(place + moved) / np.linalg.norm(place + moved) for moved in walk]
    frames = [(f"seq_{number}.jpg", look.astype(np.float32)) for number, look in enumerate(looks)]
    found = spread_over(frames[::2], frames[1::2])
    assert found is not None
    other, own = (int(name[4:-4]) for name in found)
    assert abs(other - own) == 1 and other % 2 == 1
    assert spread_over(frames[:20], frames[20:]) is None  # the later half
    apart = [(f"{number}.jpg", print_of(rng.integers(0, 256, (64, 64, 3), np.uint8))) for number in range(40)]
    assert spread_over(apart[::2], apart[1::2]) is None  # photographs of different scenes
    assert spread_over(frames[:2], frames[2:4]) is None


def test_different_scenes_are_no_video() -> None:
    prints = [print_of(np.random.default_rng(seed).integers(0, 256, (240, 320, 3), np.uint8)) for seed in range(5)]
    crowds = [print_of(np.asarray(crowd(seed)[0])) for seed in (1, 2)]
    assert share_alike(prints) == 0
    assert float(crowds[0] @ crowds[0]) >= ALIKE
    assert print_of(np.zeros((9, 9, 3), np.uint8)).sum() == 0


def test_training_and_check_refuse_the_same_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = video(tmp_path / "camera")
    rows = (root / "train.csv").read_text().splitlines()
    shares = [
        f"{name},{float(x) / 320:.4f},{float(y) / 240:.4f}" for name, x, y in (row.split(",") for row in rows[1:])
    ]
    (root / "train.csv").write_text("\n".join([rows[0], *shares]))
    assert main(["data", "check", "--dataset", "csv", "--root", str(root), "--json", "--no-model"]) == 1
    kinds = {finding["kind"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert "wrong_units" in kinds
    with pytest.raises(DataError, match="look like fractions of the picture"):
        refuse_broken(load("csv", root))


def test_what_nothing_can_be_learnt_from_is_refused_by_check_and_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = video(tmp_path / "camera")
    arguments = ["data", "check", "--dataset", "csv", "--root", str(root), "--no-model", "--json"]
    rows = (root / "train.csv").read_text().splitlines()
    names = sorted({row.partition(",")[0] for row in rows[1:]})

    def broken(*lines: str) -> set[str]:
        (root / "train.csv").write_text("\n".join([rows[0], *lines]))
        code = main(arguments)
        found = {one["kind"] for one in json.loads(capsys.readouterr().out)["findings"] if one["broken"]}
        assert code == (1 if found else 0)
        return found

    assert broken(*(f"{name},," for name in names)) == {"nobody"}
    with pytest.raises(DataError, match="None of the 12 pictures has a person marked"):
        refuse_broken(load("csv", root))
    assert broken(*(row for row in rows[1:] if row < "005")) == {"too_few"}
    with pytest.raises(DataError, match="too few to hold back any"):
        load("csv", root, "val")
    assert broken(*(row for row in rows[1:] if row < "006")) == set()
    whole = (root / "images" / "003.png").read_bytes()
    (root / "images" / "003.png").write_bytes(whole[: len(whole) // 2])
    assert broken(*rows[1:]) == {"unreadable_image"}
    with pytest.raises(DataError, match=r"003\.png: The PNG image is damaged or truncated"):
        refuse_broken(load("csv", root))


def test_the_sheet_shows_every_picture_with_its_dots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = video(tmp_path / "camera", frames=6)
    sheet = tmp_path / "sheet.png"
    arguments = ["data", "check", "--dataset", "csv", "--root", str(root), "--no-model", "--sheet", str(sheet)]
    assert main(arguments) == 0
    with Image.open(sheet) as image:
        assert image.width == 4 * WIDTH
        yellow = (np.asarray(image.convert("RGB")) == (255, 255, 0)).all(axis=2).sum()
    assert yellow > 6 * 10 * len(load("csv", root)[0].points)
    assert main(arguments) == 2  # it exists
    assert "--overwrite" in capsys.readouterr().err
    Image.new("RGB", (2, 4000)).save(root / "images" / "001.png")  # as narrow as it is, it is not drawn miles high
    (root / "images" / "000.png").write_bytes(b"broken")
    assert 0 < contact_sheet(load("csv", root)).height < 1500
