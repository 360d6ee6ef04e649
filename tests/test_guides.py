"""The documentation cannot drift: commands are parsed, links are followed, examples are read by the code they show."""

import json
import re
import shlex
from pathlib import Path

import pytest
from support.paths import ROOT

from uepnet.cli import build_parser
from uepnet.model.artifact import Artifact
from uepnet.model.camera_file import parse_cameras
from uepnet.model.runtime import BUNDLED
from uepnet.model.zones import load_zones
from uepnet.video.recording import read_records

DOCS = ROOT / "docs"
GUIDES = ("video.md", "zones.md", "control-room.md", "privacy.md")
PAGES = sorted(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """(page, command line) of every `uepnet ...` in a shell block, continued lines joined."""
    return [
        (str(page), line)
        for page in PAGES
        for block in blocks(page, "(?:sh|bash)?")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("uepnet ")
    ]


def anchors(page: Path) -> set[str]:
    """The anchors that a code host gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(("page", "line"), commands())
def test_every_command_shown_is_understood(page: str, line: str) -> None:
    words = shlex.split(line.partition(" > ")[0].partition(" | ")[0], comments=True)[1:]
    assert build_parser(only=words[0]).parse_args(words).command == words[0]


@pytest.mark.parametrize("guide", GUIDES)
def test_every_option_named_exists(guide: str) -> None:
    known = {
        option
        for command in ("count", "video", "plot", "serve", "watch", "history")
        for option in re.findall(r"--[a-z][a-z-]*", _help(command))
    }
    named = set(re.findall(r"--[a-z][a-z-]*", (DOCS / guide).read_text()))
    assert named <= known


def test_the_zones_shown_are_zones() -> None:
    (block,) = blocks(Path("docs/zones.md"), "json")
    assert [zone.name for zone in load_zones(block)] == ["platform", "door"]


def test_the_lines_shown_are_a_recording(tmp_path: Path) -> None:
    (block,) = blocks(Path("docs/video.md"), "json")
    (tmp_path / "a.jsonl").write_text(block)
    records = list(read_records(tmp_path / "a.jsonl"))
    assert [("count" in record, "gap" in record) for record in records] == [(True, False), (False, True)]
    assert json.loads(json.dumps(records[0]))["model"]["version"] == "1"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    path = ROOT / page
    for file, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#]*)#?([^)]*)\)", path.read_text()):
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), file
        assert not anchor or anchor in anchors(target), f"{file}#{anchor}"


FOLDERS = "model|training|service|client|video|uepnet|bench|deploy|tests|docs"


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/model-card.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_every_file_named_exists(page: str) -> None:
    for path in re.findall(rf"`((?:{FOLDERS})/[\w./*-]*)`", (ROOT / page).read_text()):
        assert list(ROOT.glob(path)), path


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    for path in DOCS.glob("*.md"):
        assert path.name == "README.md" or f"({path.name})" in index, f"docs/README.md does not list {path.name}"


def test_the_model_card_is_about_the_bundled_model_and_short() -> None:
    card = (DOCS / "model-card.md").read_text()
    assert f"version {Artifact.load(BUNDLED).version}," in card
    assert len(card.splitlines()) <= 120


def _help(command: str) -> str:
    parser = build_parser(only=command)
    (actions,) = (action for action in parser._actions if action.choices and command in action.choices)
    assert isinstance(actions.choices, dict)
    parser = actions.choices[command]
    nested = [action for action in parser._actions if isinstance(action.choices, dict)]
    helps = [parser, *(sub for action in nested for sub in dict(action.choices or {}).values())]
    return "".join(one.format_help() for one in helps)


def test_the_camera_file_shown_is_one() -> None:
    cameras, notify = blocks(Path("docs/control-room.md"), "yaml")
    file = parse_cameras(cameras + notify)
    assert list(file.cameras) == ["gate", "Platform 3", "Hall"]
    assert file.notify.mqtt is not None
