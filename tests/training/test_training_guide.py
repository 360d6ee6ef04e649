"""docs/training.md is checked: every command in it is one, and its example of a table is read as it says."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
import releases

from uepnet.cli import build_parser
from uepnet.training.check import BROKEN, NOTED
from uepnet.training.dataset import READERS, load

GUIDE = (Path(__file__).parents[2] / "docs" / "training.md").read_text()


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
