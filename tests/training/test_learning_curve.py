"""The learning curve of a run: means between validations, of finished, stopped and running runs."""

import json
from pathlib import Path

import pytest
from PIL import Image
from support.scenes import release, starting_weights

from uepnet.cli import main
from uepnet.model.errors import InputError
from uepnet.training.config import Config
from uepnet.training.learning_curve import plot_learning, read_log, stretches
from uepnet.training.train import train


def step(number: int, loss: float, lr: float = 0.1) -> dict[str, object]:
    return {"step": number, "kind": "train", "loss": loss, "lr": lr}


LOG = [
    step(10, 4.0),
    step(20, 2.0),
    {"step": 20, "kind": "val", "val_mae": 9.0, "val_rmse": 12.0},
    step(30, 1.0, 0.01),
    {"step": 40, "kind": "val", "train_mae": 7.0, "train_rmse": 8.0},
    step(50, 0.5, 0.01),
]


def test_the_loss_is_the_mean_between_validations() -> None:
    assert stretches(LOG) == [
        {"step": 20, "loss": 3.0, "lr": 0.1, "mae": 9.0, "rmse": 12.0},
        {"step": 40, "loss": 1.0, "lr": 0.01, "mae": 7.0, "rmse": 8.0},
        {"step": 50, "loss": 0.5, "lr": 0.01, "mae": None, "rmse": None},
    ]
    assert stretches([LOG[2]]) == [{"step": 20, "loss": None, "lr": None, "mae": 9.0, "rmse": 12.0}]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    text = "".join(json.dumps(line) + "\n" for line in LOG)
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 60, "ki')
    assert read_log(tmp_path) == LOG


@pytest.mark.parametrize(("text", "words"), [(None, "not a training run"), ("", "still empty"), ("x\n", "cannot be")])
def test_what_is_no_log_is_one_sentence(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(InputError, match=words):
        read_log(tmp_path)


def test_the_picture_is_drawn_with_and_without_validations(tmp_path: Path) -> None:
    drawn = []
    for name, log in (("all", LOG), ("start", LOG[:1]), ("validation", LOG[2:3])):
        plot_learning(log, tmp_path / f"{name}.png")
        with Image.open(tmp_path / f"{name}.png") as picture:
            drawn.append(picture.convert("RGB").tobytes())
    assert len(set(drawn)) == 3


def test_the_command_needs_the_run_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = starting_weights(tmp_path / "start.safetensors")
    data = (("shanghaitech-b", str(release(tmp_path / "crowds", images=24, part="B"))),)
    values = {"init": str(start), "width": 16, "intervals": 6, "crop": 64, "batch": 1, "steps": 10, "threads": 1}
    train(tmp_path / "run", Config.of({"data": data, "validate_images": 1, **values}))
    line = ["analyse", "learning", "--model", str(tmp_path / "run"), "--plot", str(tmp_path / "curve.png"), "--json"]
    assert main(line) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["step"] == 10 and row["loss"] > 0 and row["mae"] > 0
    assert (tmp_path / "curve.png").stat().st_size > 1000
    assert main(line) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["analyse", "learning"]) == 2
    assert "pass its folder as --model" in capsys.readouterr().err
    assert main(["analyse", "discretisation"]) == 2
    assert "The analysis discretisation needs --dataset and --root." in capsys.readouterr().err
