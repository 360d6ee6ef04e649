"""Runs side by side: settings that differ, curves, and which of them counts better on the same pictures."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.scenes import release, starting_weights

from uepnet.cli import main
from uepnet.training.config import Config
from uepnet.training.courses import course, verdict
from uepnet.training.folds import Mean
from uepnet.training.train import train


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that differ in their learning rate and steps."""
    folder = tmp_path_factory.mktemp("runs")
    release(folder / "crowds", images=24)
    starting_weights(folder / "start.safetensors")
    for name, steps, rate in (("first", 10, 1e-3), ("second", 20, 1e-2)):
        train(
            folder / name,
            Config(
                data=(("shanghaitech-a", str(folder / "crowds")),),
                init=str(folder / "start.safetensors"),
                width=16,
                intervals=6,
                crop=64,
                batch=1,
                steps=steps,
                lr=rate,
                warm_up=2,
                threads=1,
                validate_every=10,
                validate_images=1,
            ),
        )
    return folder


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    return place


def test_settings_that_differ_and_the_course_are_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "first", "second", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["settings"] == {"lr": [1e-3, 1e-2], "steps": [10, 20]}
    assert [(one["run"], one["done"]) for one in answer["runs"]] == [("first", 10), ("second", 20)]
    assert all(one["loss"] > 0 and one["metrics"]["val_mae"] > 0 for one in answer["runs"])
    assert main(["compare", "first", "second"]) == 0
    assert "--lr" in capsys.readouterr().out


def test_curves_of_all_runs_are_drawn(here: Path, tmp_path: Path) -> None:
    assert main(["compare", "first", "second", "--plot", str(tmp_path / "curves.png")]) == 0
    pixels = np.asarray(Image.open(tmp_path / "curves.png").convert("RGB")).reshape(-1, 3).astype(int)
    for colour in ((0x31, 0x68, 0x8E), (0xD1, 0x49, 0x5B)):
        assert (np.abs(pixels - colour).sum(axis=1) < 12).sum() > 20
    assert main(["compare", "first", "--plot", str(tmp_path / "one.png")]) == 0


def test_runs_are_compared_on_the_same_pictures(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["compare", "first", "second", "--dataset", "shanghaitech-a", "--root", "crowds", "--split", "test"]
    assert main([*line, "--device", "cpu", "--threads", "1", "--quiet", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    before, after = (one["counted"]["mae"] for one in answer["runs"])
    (change,) = answer["differences"]
    assert change["mae"] == pytest.approx(before - after) and change["low"] < change["mae"] < change["high"]
    assert "second" in change["verdict"]


def test_a_difference_is_called_one_only_beyond_its_uncertainty() -> None:
    assert "b counts better than a: its mean error is smaller by 2.00 people (1.18 to 2.82" in verdict(
        "a", "b", Mean(2, 0.5)
    )
    assert "b counts worse than a: its mean error is larger by 2.00 people (1.18 to 2.82" in verdict(
        "a", "b", Mean(-2, 0.5)
    )
    assert "do not show which of a and b" in verdict("a", "b", Mean(0.5, 0.5))


def test_a_run_that_is_still_being_written_is_read_as_far_as_it_got(here: Path, tmp_path: Path) -> None:
    shutil.copytree(here / "first", tmp_path / "run")
    log = tmp_path / "run" / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:1]) + '{"step": 10, "ki')
    (tmp_path / "run" / "artifact.json").unlink()
    assert (course(tmp_path / "run").done, course(tmp_path / "run").metrics) == (10, {})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("first", "A single run cannot be compared"),
        ("first first", "given twice"),
        ("first nowhere", "nowhere is not a training run"),
        ("first second --dataset csv", "belong together"),
        ("first second --plot first/weights.safetensors", "must end in .png"),
        ("first second --plot curves.txt", "must end in .png"),
        ("first second --plot old.png", "old.png exists"),
        ("bare --plot new.png", "no log of training"),
    ],
)
def test_wrong_input_is_one_sentence(options: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "old.png").write_text("mine")
    (here / "bare").mkdir(exist_ok=True)
    shutil.copy(here / "first" / "config.json", here / "bare" / "config.json")
    assert main(["compare", *options.split()]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert (here / "old.png").read_text() == "mine" and not (here / "new.png").exists()
