"""docs/training.md is checked: its path is walked command by command, and its example of a table is read as it says."""

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support import releases
from support.paths import ROOT
from support.scenes import scene
from support.tiny_run import tiny_run

from uepnet.cli import build_parser, main
from uepnet.training.data.dataset import READERS, load
from uepnet.training.data.dataset_check import BROKEN, NOTED

GUIDE = (ROOT / "docs/training.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


COMMANDS = [line for block in blocks("bash") for line in block.splitlines()]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_guide_is_understood(line: str) -> None:
    program, command, *_ = words = shlex.split(line.partition(">")[0])
    assert program == "uepnet"
    assert find_spec(f"uepnet.commands.{command}") is not None
    args = build_parser(only=command).parse_args(words[1:])
    for name in (getattr(args, "dataset", None) or "csv").split(","):
        assert name in READERS


PATH = blocks("bash")[0].splitlines()
SOONER = {  # what makes a command of the path quick: drawn pictures need no trained network
    "suggest": ["--model", "start"],
    "prelabel": ["--model", "start"],
    "data": ["--no-model"],
    "finetune": ["--init", "start", "--steps", "1", "--minutes", "1", "--threads", "1"],
    "evaluate": ["--threads", "1"],
}


def test_the_path_of_the_guide_leads_from_recordings_to_a_model_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command of the first block in its order; between prelabel and check a person labels in CVAT."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    (tmp_path / "recordings").mkdir()
    for number in range(14):
        scene(rng, number, 128, 96)[0].save(tmp_path / "recordings" / f"{number}.png")
    tiny_run(tmp_path / "start", sorted((tmp_path / "recordings").iterdir()))
    walked = []
    for line in PATH:
        words = shlex.split(line)[1:]
        if words[0] == "data":
            labelled_in_cvat(tmp_path / "my-camera")
        if words[0] == "serve":
            words = ["count", "my-camera/images/1.png", "--json", *words[1:]]
        capsys.readouterr()
        assert main([*words, *SOONER.get(words[0], [])]) == 0, line
        walked.append(words[0])
    (counted,) = json.loads(capsys.readouterr().out)
    assert counted["range"] is not None
    assert walked == ["suggest", "prelabel", "data", "finetune", "evaluate", "count"]
    for name in ("next.html", "proposed.xml", "labels.png", "runs/gate/report.html", "runs/gate/verdict.json"):
        assert (tmp_path / name).stat().st_size > 0


def labelled_in_cvat(root: Path) -> None:
    """What CVAT exports when somebody has put one point into each picture: twelve to train with, two to test."""
    pictures = sorted((root / "images").iterdir())
    for name, chosen in (("annotations.xml", pictures[:12]), ("test.xml", pictures[12:])):
        images = [
            f'<image id="{number}" name="{path.name}" width="128" height="96">'
            '<points label="head" source="manual" points="64.0,48.0"/></image>'
            for number, path in enumerate(chosen)
        ]
        (root / name).write_text(f"<annotations><version>1.1</version>{''.join(images)}</annotations>")


def test_the_guide_s_table_of_points_is_read_as_it_says(tmp_path: Path) -> None:
    (table,) = blocks("csv")
    (tmp_path / "points.csv").write_text(table)
    for name in ("monday-0800.jpg", "monday-0805.jpg"):
        releases.picture(tmp_path / "images" / name)
    eight, five_past = load("csv", tmp_path)
    assert eight.points.tolist() == [[412.5, 96.0], [430.0, 101.5]]
    assert len(five_past.points) == 0
    assert five_past.size == releases.SIZE


def test_the_guide_knows_every_data_set_and_every_finding() -> None:
    for name in (*READERS, *BROKEN, *NOTED):
        assert f"`{name}`" in GUIDE, name
