"""The guides to video and zones cannot drift: what they show is parsed by what they describe."""

import json
import re
import shlex
from pathlib import Path

import pytest

from uepnet.cli import build_parser
from uepnet.model.zones import load_zones
from uepnet.service.recording import read_records

DOCS = Path(__file__).parent.parent / "docs"
GUIDES = ("video.md", "zones.md")


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / guide).read_text(), re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    lines = (line for guide in GUIDES for block in blocks(guide, "sh") for line in block.splitlines())
    return [line for line in lines if line.startswith("uepnet ")]


@pytest.mark.parametrize("line", commands())
def test_every_command_shown_is_understood(line: str) -> None:
    words = shlex.split(line)[1:]
    assert build_parser(only=words[0]).parse_args(words).command == words[0]


@pytest.mark.parametrize("guide", GUIDES)
def test_every_option_named_exists(guide: str) -> None:
    known = {
        option
        for command in ("count", "video", "plot", "serve")
        for option in re.findall(r"--[a-z][a-z-]*", _help(command))
    }
    named = set(re.findall(r"--[a-z][a-z-]*", (DOCS / guide).read_text()))
    assert named <= known


def test_the_zones_shown_are_zones() -> None:
    (block,) = blocks("zones.md", "json")
    assert [zone.name for zone in load_zones(block)] == ["platform", "door"]


def test_the_lines_shown_are_a_recording(tmp_path: Path) -> None:
    (block,) = blocks("video.md", "json")
    (tmp_path / "a.jsonl").write_text(block)
    records = list(read_records(tmp_path / "a.jsonl"))
    assert [("count" in record, "gap" in record) for record in records] == [(True, False), (False, True)]
    assert json.loads(json.dumps(records[0]))["model"]["version"] == "1"


@pytest.mark.parametrize("guide", GUIDES)
def test_every_link_leads_somewhere(guide: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (DOCS / guide).read_text()):
        assert (DOCS / target).exists(), target


def _help(command: str) -> str:
    parser = build_parser(only=command)
    (actions,) = (action for action in parser._actions if action.choices and command in action.choices)
    assert isinstance(actions.choices, dict)
    return str(actions.choices[command].format_help())
