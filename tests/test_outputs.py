"""Every output option against every input: no input changes by a byte, and nothing old is replaced unasked."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.toy import toy_model
from support.videos import numbered, write_video

from uepnet.cli import main

COMMANDS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "count": (["count", "in/a.png", "in", "--zones", "zones.json", "--model", "model"], ("--csv", "--overlay")),
    "video": (
        ["video", "in/a.mp4", "--fps", "5", "--zones", "zones.json", "--model", "model"],
        ("--out", "--csv", "--plot", "--annotate"),
    ),
    "frames": (
        ["video", "frames", "--zones", "zones.json", "--model", "model"],
        ("--out", "--csv", "--plot", "--annotate"),
    ),
    "plot": (["plot", "in/counts.jsonl"], ("--out",)),
}
# With --overwrite one may ask for what the command does not read.
NO_INPUTS = {
    "count": {"old", "in/a.mp4", "in/counts.jsonl", "frames/0.png"},
    "video": {"old", "in/a.png", "in/counts.jsonl", "frames/0.png"},
    "frames": {"old", "in/a.png", "in/a.mp4", "in/counts.jsonl"},
    "plot": set[str](),
}
PLACES = (
    *("in/a.png", "in/a.mp4", "in/counts.jsonl", "zones.json", "model/artifact.json", "frames/0.png", "old"),
    *("link", "hard", "linked/a.mp4", "in/../in/a.png", "new", "new.jsonl", "new.png", "new.mp4", "in", ".", "linked"),
    *("hard.mp4", "link.png", "/dev/null", "/dev/stdout", "nowhere/new.csv", "frames"),
)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Fills a folder with inputs, an old result and links to both."""
    source = tmp_path_factory.mktemp("originals")
    toy_model(source / "model")
    write_video(source / "a.mp4", [numbered(number) for number in range(6)])

    def fill(here: Path) -> None:
        for folder in ("in", "frames", "model"):
            (here / folder).mkdir()
        for path in (source / "model").iterdir():
            (here / "model" / path.name).write_bytes(path.read_bytes())
        (here / "in" / "a.mp4").write_bytes((source / "a.mp4").read_bytes())
        Image.fromarray(np.full((48, 64, 3), 90, np.uint8)).save(here / "in" / "a.png")
        Image.fromarray(np.full((48, 64, 3), 90, np.uint8)).save(here / "frames" / "0.png")
        record = {"frame": 0, "timestamp": 0.0, "count": 1.0, "range": None, "zones": []}
        (here / "in" / "counts.jsonl").write_text(json.dumps(record) + "\n")
        zone = {"name": "left", "units": "fractions", "polygon": [[0, 0], [0.5, 0], [0.5, 1]]}
        (here / "zones.json").write_text(json.dumps({"zones": [zone]}))
        (here / "old").write_text("an old result")
        (here / "link").symlink_to(here / "in" / "a.mp4")
        (here / "link.png").symlink_to(here / "in" / "a.png")
        (here / "hard").hardlink_to(here / "zones.json")
        (here / "hard.mp4").hardlink_to(here / "in" / "a.mp4")
        (here / "linked").symlink_to(here / "in")

    return fill


def contents(here: Path) -> dict[str, bytes]:
    """What must not change: the inputs, and the old result."""
    kept = ("in/a.png", "in/a.mp4", "in/counts.jsonl", "zones.json", "frames/0.png", "old")
    files = [*(here / name for name in kept), *(here / "model").iterdir()]
    return {str(path): path.read_bytes() for path in files}


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_output_option_harms_any_file(
    data: st.DataObject,
    originals: Callable[[Path], None],
    tmp_path_factory: pytest.TempPathFactory,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = data.draw(st.sampled_from(sorted(COMMANDS)))
    arguments, options = COMMANDS[name]
    chosen = data.draw(st.lists(st.sampled_from(options), min_size=1, unique=True))
    line = list(arguments)
    for option in chosen:
        line += [option, data.draw(st.sampled_from(PLACES))]
    line += data.draw(st.sampled_from([[], ["--overwrite"], ["--resume"]])) if name != "plot" else []
    here = tmp_path_factory.mktemp("here")
    originals(here)
    before, home = contents(here), Path.cwd()
    os.chdir(here)
    try:
        code = main([*line, "--quiet"])
    finally:
        os.chdir(home)
    after = contents(here)
    changed = {str(Path(path).relative_to(here)) for path in before if after[path] != before[path]}
    allowed = NO_INPUTS[name] if "--overwrite" in line else set()
    assert changed <= allowed, line
    errors = capfd.readouterr().err
    assert code in (0, 1, 2) and errors.count("\n") == (code == 2), (line, errors)
    assert not list(here.rglob("*.part")), line


@pytest.mark.parametrize(
    "line",
    [
        "video in/a.mp4 --annotate in/a.mp4",
        "video in/a.mp4 --csv in/a.mp4 --overwrite",
        "video in/a.mp4 --out in/a.mp4 --overwrite",
        "video in/a.mp4 --csv a.txt --out a.txt",
        "video in/a.mp4 --resume --out zones.json",
        "video in/a.mp4 --resume --out old",
        "video frames --resume --csv in/a.png",
        "video frames --resume --plot in/a.png",
        "video frames --resume --annotate in/a.mp4",
        "count in/a.png --overlay in --overwrite",
        "count in/a.png --csv in/a.png --overwrite",
        "count in/a.png --csv in/a.png --resume",
        "count in --overlay in/drawn",
        "plot in/counts.jsonl --out in/counts.jsonl --overwrite",
    ],
)
def test_what_destroyed_files_is_one_sentence(
    originals: Callable[[Path], None],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    originals(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = contents(tmp_path)
    model = [] if line.startswith("plot") else ["--model", "model"]
    assert main([*line.split(), *model]) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert contents(tmp_path) == before
