"""Where errors come from, how strongly they pull, and what fixed interval steps cost."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.scenes import release, starting_weights

from uepnet.cli import main
from uepnet.commands.shared.models import open_model
from uepnet.model.artifact import Artifact, Head
from uepnet.model.errors import DataError
from uepnet.model.intervals import classify
from uepnet.training.analyse import HeadContributions, discretisation, error_contributions, plot_contributions
from uepnet.training.config import Config
from uepnet.training.data import dataset
from uepnet.training.data.targets import count_maps
from uepnet.training.evaluate import evaluate
from uepnet.training.gallery import WIDTH, draw_worst, worst_block
from uepnet.training.gradients import _errors_and_gradients
from uepnet.training.partition import T_0, liu_borders, sdcnet_borders
from uepnet.training.train import train

HEADS = (
    Head(borders=(T_0, 0.5), proxies=(0.0, 0.2, 1.0)),
    Head(borders=(T_0, 0.2, 1.0), proxies=(0.0, 0.1, 0.5, 2.0)),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one step, `classes` and `regression`, beside their data."""
    folder = tmp_path_factory.mktemp("data")
    data = (("shanghaitech-b", str(release(folder / "crowds", images=24, part="B"))),)
    start = starting_weights(folder / "start.safetensors")
    shared = {"data": data, "init": str(start), "width": 16, "intervals": 6, "crop": 64, "batch": 2, "steps": 1}
    for target in ("classes", "regression"):
        train(folder / target, Config.of(shared | {"threads": 1, "validate_images": 1, "target": target}))
    return folder


def asked(place: Path, what: str, *options: str) -> list[str]:
    return ["analyse", what, "--dataset", "shanghaitech-b", "--root", str(place / "crowds"), "--json", *options]


@pytest.mark.parametrize("target", ["classes", "regression"])
def test_the_error_of_both_heads_is_divided_among_their_intervals(
    place: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(asked(place, "contributions", "--model", str(place / target), "--intervals", "6")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [len(head["shares"]) for head in answer["heads"]] == [6, 7]
    for head in answer["heads"]:
        assert sum(head["shares"]) == pytest.approx(1)
        assert head["shares"][0] == pytest.approx(answer["background"])
        assert np.array(head["errors"]) / sum(head["errors"]) == pytest.approx(np.array(head["shares"]))
    assert answer["shares"] == answer["heads"][0]["shares"]


@pytest.mark.parametrize(
    ("what", "option", "value"),
    [
        ("decoding", "--plot", ["a.png"]),
        ("scale", "--plot", ["a.png"]),
        ("gradients", "--write", []),
        ("contributions", "--beside", ["run"]),
    ],
)
def test_an_option_without_effect_is_refused(
    place: Path, tmp_path: Path, what: str, option: str, value: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / name) for name in value]
    assert main([*asked(place, what), "--model", str(place / "classes"), option, *paths]) == 2
    assert f"{option} has no effect on {what}: it works with" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_contributions_without_intervals_are_refused(place: Path) -> None:
    artifact, run_tiles, _ = open_model(place / "regression", device="cpu")
    with pytest.raises(DataError, match="no intervals of its own"):
        error_contributions([], artifact, run_tiles)


def test_contributions_are_measured_on_the_cells_that_the_network_classifies(place: Path) -> None:
    artifact, run_tiles, _ = open_model(place / "classes", device="cpu")
    samples = dataset.load("shanghaitech-b", place / "crowds", "val")[:1]
    for scale in (1.0, 2.0):
        found = error_contributions(samples, artifact.model_copy(update={"scale": scale}), run_tiles)
        (truth,) = count_maps(samples, 8, scale=scale)
        classes = classify(truth, artifact.heads[0].borders)
        assert found["cells"] == np.bincount(classes.ravel(), minlength=6).tolist()


def test_contributions_of_both_heads_are_drawn(tmp_path: Path) -> None:
    one: HeadContributions = {"shares": [0.2, 0.8], "errors": [1.0, 4.0], "cells": [90.0, 10.0]}
    other: HeadContributions = {"shares": [0.2, 0.3, 0.5], "errors": [1.0, 1.5, 2.5], "cells": [90.0, 6.0, 4.0]}
    drawn = []
    for index, heads in enumerate(([one], [one, one], [one, other])):
        plot_contributions(heads, tmp_path / f"{index}.png")
        with Image.open(tmp_path / f"{index}.png") as picture:
            drawn.append(np.asarray(picture.convert("RGB")).copy())
    assert drawn[0].shape == drawn[1].shape == drawn[2].shape
    assert not np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[1], drawn[2])


@pytest.mark.parametrize("target", ["classes", "regression"])
def test_gradients_are_shown_by_error(
    place: Path, tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "gradients.png"
    assert main(asked(place, "gradients", "--model", str(place / target), "--plot", str(plot))) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    samples = dataset.load("shanghaitech-b", place / "crowds", "val")
    assert sum(row["cells"] for row in rows) == sum(counts.size for counts in count_maps(samples, 8)) > 0
    assert plot.stat().st_size > 1000


def test_gradients_of_two_runs_are_set_side_by_side(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "both.png"
    both = ["--model", str(place / "classes"), "--beside", str(place / "regression"), "--plot", str(plot)]
    assert main(asked(place, "gradients", *both)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert main(asked(place, "gradients", "--model", str(place / "regression"))) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == answer["beside"] != answer["rows"]
    assert plot.stat().st_size > 1000
    assert main(asked(place, "gradients", "--model", str(place / "classes"), "--beside", str(place))) == 2
    assert "pass its folder as --beside" in capsys.readouterr().err


def test_the_gradient_of_a_squared_error_grows_with_the_error_and_that_of_a_class_does_not() -> None:
    counts = torch.tensor([[[0.0, 0.0, 0.0]]])
    regression = Artifact.model_construct(decoding="regression", heads=())
    outputs = [torch.tensor([[[[0.1, 1.0, 10.0]]]])]
    error, gradient = _errors_and_gradients(outputs, counts, regression)
    assert error == pytest.approx([0.1, 1, 10]) and gradient == pytest.approx([0.2, 2, 20])
    below = [-outputs[0]]  # counted as nobody, which is right; a ReLU in training gives them no gradient
    for relu, expected in ((False, [0.2, 2, 20]), (True, [0, 0, 0])):
        trained = regression.model_copy(update={"training": {"settings": {"output_relu": relu}}})
        error, gradient = _errors_and_gradients(below, counts, trained)
        assert error == pytest.approx([0, 0, 0]) and gradient == pytest.approx(expected)
    classes = Artifact.model_construct(decoding="argmax", heads=HEADS[:1])
    sure = torch.tensor([[[[9.0, 0.0, 0.0]], [[0.0, 9.0, 0.0]], [[0.0, 0.0, 9.0]]]])
    error, gradient = _errors_and_gradients([sure], counts, classes)
    assert error == pytest.approx([0, 0.2, 1.0])
    assert gradient[0] < 0.01 and gradient[1:] == pytest.approx([2, 2], abs=0.01)


def test_the_steps_of_s_dcnet_are_fine_up_to_a_half_and_coarse_beyond() -> None:
    assert sdcnet_borders(2.2, T_0) == pytest.approx([T_0, *(0.05 * step for step in range(1, 11)), 1.0, 1.5, 2.0])
    maps = [np.random.default_rng(1).exponential(0.4, (40, 50)).astype(np.float32)]
    table = discretisation(maps, maps, intervals=12, knee=0.5)
    assert set(table) == {"uep", "uniform-length", "uniform-number", "two-linear", "log", "s-dcnet", "liu"}
    assert table["s-dcnet"]["mean"] < 0.01 < table["s-dcnet"]["midpoint"]


def test_the_steps_of_liu_et_al_are_equal_ratios_above_a_first_wide_interval() -> None:
    borders = liu_borders(1.0, T_0)
    assert borders[:3] == pytest.approx([T_0, np.exp(-2), np.exp(-1.9)])
    assert len(borders) == 21 and borders[-1] == pytest.approx(np.exp(-0.1))
    assert liu_borders(0.1, T_0).tolist() == [T_0]
    assert len(liu_borders(np.exp(3.5) - 0.01)) == 56  # LibraNet has 57 classes, the background and up to e^3.5 people


def test_the_worst_region_of_an_image_is_marked() -> None:
    truth = np.zeros((40, 60), np.float32)
    counted = truth.copy()
    counted[20:30, 35:45] = 0.5  # too many
    counted[0:4, 0:4] = 1.0  # a smaller error
    left, top, right, bottom = worst_block(truth, counted, 16)
    assert (right - left, bottom - top) == (16, 16)
    assert left <= 35 and right >= 45 and top <= 20 and bottom >= 30
    assert worst_block(counted, truth, 16).tolist() == [left, top, right, bottom]  # too few is as wrong
    assert worst_block(truth[:5, :7], counted[:5, :7], 16).tolist() == [0, 0, 7, 5]


def test_the_gallery_has_the_worst_images_and_the_best(place: Path, tmp_path: Path) -> None:
    artifact, run_tiles, _ = open_model(place / "classes", device="cpu")
    samples = dataset.load("shanghaitech-b", place / "crowds", "test")
    results = evaluate(samples, artifact, run_tiles)
    draw_worst(samples, results, artifact, tmp_path / "sheet.png", rows=2, best=1)
    height = round(WIDTH * 128 / 160) + 22
    assert len(samples) > 3
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (3 * WIDTH, 3 * height)
    draw_worst(samples[:1], results[:1], artifact, tmp_path / "one.png", rows=2, best=1)
    with Image.open(tmp_path / "one.png") as sheet:
        assert sheet.size == (3 * WIDTH, height)
