"""A run that is stopped in any way can be exported and resumed; what may change then is said, the rest is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.scenes import release, starting_weights

from uepnet.cli import main
from uepnet.model.artifact import Artifact
from uepnet.model.errors import DataError
from uepnet.training import run_folder
from uepnet.training.config import Config
from uepnet.training.metrics_log import StepMetrics
from uepnet.training.prepare import load_network
from uepnet.training.run_folder import CHECKPOINT, claimed, locked
from uepnet.training.train import train


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    release(folder / "crowds", images=24)
    starting_weights(folder / "start.safetensors")
    return folder


@pytest.fixture(scope="module")
def stopped(place: Path) -> Path:
    """A run that was stopped after two of six steps."""
    seen: list[int] = []
    train(place / "stopped", config(place), watch=lambda p: seen.append(p.step), stop=lambda: len(seen) >= 2)
    return place / "stopped"


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    shutil.copytree(stopped, tmp_path / "run")
    return tmp_path / "run"


def config(place: Path, **changes: object) -> Config:
    values: dict[str, object] = {
        "data": (("shanghaitech-a", str(place / "crowds")),),
        "init": str(place / "start.safetensors"),
        "width": 16,
        "intervals": 6,
        "crop": 64,
        "batch": 2,
        "steps": 6,
        "warm_up": 2,
        "threads": 1,
        "validate_every": 1000,
        "validate_images": 2,
        "checkpoint_seconds": 1e9,
    }
    return Config(**(values | changes))  # type: ignore[arg-type]


def steps_of(run: Path) -> int:
    return int(torch.load(run / CHECKPOINT, weights_only=True)["step"])


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_to_the_whole_process_group_leaves_a_run_to_export_and_resume(
    signal_: signal.Signals, place: Path, tmp_path: Path
) -> None:
    run, file = tmp_path / "run", tmp_path / "config.json"
    settings = config(place, steps=100_000, workers=2, checkpoint_seconds=0.2)
    file.write_text(settings.model_dump_json())
    line = [sys.executable, "-m", "uepnet", "train", "--config", str(file), "--out", str(run), "--quiet"]
    pipe = subprocess.PIPE
    # Where the tests run under nohup, SIGHUP is ignored, and so it would be in the process that they start.
    obey = partial(signal.signal, signal_, signal.SIG_DFL)
    with subprocess.Popen(
        line, start_new_session=True, stdout=pipe, stderr=pipe, text=True, preexec_fn=obey
    ) as process:
        try:
            deadline = time.monotonic() + 120
            while not (run / CHECKPOINT).exists():
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            os.killpg(process.pid, signal_)
            output, errors = process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, errors) == (130, "")
    assert "Stopped and saved" in output
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no worker is left
    assert load_network(run, Artifact.load(run))
    done = steps_of(run)
    assert (
        done >= 1 and main(["train", "--resume", str(run), "--steps", str(done + 1), "--workers", "0", "--quiet"]) == 0
    )
    assert steps_of(run) == done + 1


def test_a_run_that_is_stopped_while_it_validates_makes_up_for_it(place: Path, tmp_path: Path) -> None:
    setup = config(place, validate_every=3)
    whole: list[StepMetrics] = []
    train(tmp_path / "whole", setup, watch=whole.append)
    seen: list[StepMetrics] = []
    train(tmp_path / "broken", setup, watch=seen.append, stop=lambda: len(seen) >= 3)
    assert [metrics.kind for metrics in seen] == ["train"] * 3
    train(tmp_path / "broken", setup, resume=True, watch=seen.append)
    assert [(m.step, m.kind, m.values) for m in seen] == [(m.step, m.kind, m.values) for m in whole]
    logs = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "broken")]
    assert logs[0] == logs[1]
    first, second = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_finished_run_is_not_trained_further_when_it_is_resumed(place: Path, tmp_path: Path) -> None:
    setup = config(place, steps=2)
    train(tmp_path / "run", setup)
    before = (tmp_path / "run" / "weights.safetensors").read_bytes()
    seen: list[StepMetrics] = []
    train(tmp_path / "run", setup, resume=True, watch=seen.append)
    assert not seen and (tmp_path / "run" / "weights.safetensors").read_bytes() == before


def test_steps_and_settings_of_the_machine_may_change_and_it_is_said(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", "--resume", str(run), "--steps", "3", "--precision", "fp32", "--lr", "0.001", "--quiet"]
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "--steps is 3 from here on; it was 6." in said
    assert "The learning rate follows the new number of steps" in said
    assert "With another --precision the weights differ in their last digits." in said
    assert "--lr" not in said  # it is the run's own
    assert (steps_of(run), Config.read(run).steps, Config.read(run).precision) == (3, 3, "fp32")


def test_data_that_was_moved_is_found_with_root(run: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = json.loads((run / "config.json").read_text())
    settings["data"] = [["shanghaitech-a", "/moved/away"]]
    (run / "config.json").write_text(json.dumps(settings))
    assert main(["train", "--resume", str(run), "--quiet"]) == 2
    assert "/moved/away does not exist" in capsys.readouterr().err
    assert main(["train", "--resume", str(run), "--root", str(place / "crowds"), "--quiet"]) == 0
    assert Config.read(run).data == (("shanghaitech-a", str(place / "crowds")),)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--lr", "0.5"], "--lr cannot change when a run is resumed"),
        (["--intervals", "9"], "--intervals cannot change"),
        (["--no-mirror"], "--mirror cannot change"),
        (["--steps", "1"], "has made 2 steps already"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--dataset", "csv"], "--dataset does not go with --resume"),
        (["--preset", "paper"], "--preset does not go with --resume"),
        (["--out", "elsewhere"], "--out does not go with --resume"),
        (["--no-scale"], "--no-scale does not go with --resume"),
    ],
)
def test_what_cannot_change_is_refused_and_the_run_stays_as_it_is(
    options: list[str], says: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["train", "--resume", str(run), *options]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before


def test_a_run_is_trained_by_one_process_at_a_time(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_folder, "PATIENCE_SECONDS", 0.3)
    with locked(run):
        assert main(["train", "--resume", str(run)]) == 2
    assert "is being trained by another process" in capsys.readouterr().err
    assert main(["train", "--resume", str(run), "--quiet"]) == 0


def test_a_start_that_fails_leaves_nothing(place: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at most 254"):
        train(tmp_path / "runs" / "run", config(place, intervals=5000))
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "runs" / "run", config(place), stop=lambda: True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataError, match="at most 254"):
        train(tmp_path / "mine", config(place, intervals=5000))
    assert list((tmp_path / "mine").iterdir()) == []  # a folder that was there stays


def test_an_error_after_a_checkpoint_leaves_the_run(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), claimed(tmp_path / "run"):
        (tmp_path / "run" / CHECKPOINT).touch()
        raise RuntimeError
    assert (tmp_path / "run" / CHECKPOINT).exists()


def test_labels_that_the_check_calls_broken_are_not_trained_on(place: Path, tmp_path: Path) -> None:
    rows = "".join(f"{number}.png,{900 + number},5\n" for number in range(8))
    (tmp_path / "points.csv").write_text("image,x,y\n" + rows)
    for number in range(8):
        shutil.copy(place / "crowds/part_A/train_data/images" / f"IMG_{number + 1}.jpg", tmp_path / f"{number}.png")
    assert main(["data", "check", "--dataset", "csv", "--root", str(tmp_path), "--no-model"]) == 1
    with pytest.raises(DataError, match="points outside its frame"):
        train(tmp_path / "run", config(place, data=(("csv", str(tmp_path)),)))


def test_the_folders_of_a_run_are_stored_absolutely(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (tmp_path / "run.yaml").write_text(
        "dataset: shanghaitech-a\nroot: crowds\ninit: start.safetensors\nwidth: 16\nintervals: 6\ncrop: 64\nbatch: 2\n"
        "threads: 1\nvalidate-images: 2\n"
    )
    assert main(["train", "--config", str(tmp_path / "run.yaml"), "--steps", "1", "--out", "run", "--quiet"]) == 0
    settings = Config.read(place / "run")
    assert (settings.data[0][1], settings.init) == (str(place / "crowds"), str(place / "start.safetensors"))
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume", str(place / "run"), "--steps", "2", "--quiet"]) == 0
