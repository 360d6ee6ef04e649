"""docs/python.md is true: all of its code runs, in order, with the bundled model."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.paths import ROOT
from support.videos import numbered, write_video

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_code_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (128, 160, 3), np.uint8)).save("crowd.jpg")
    zone = {"name": "left", "units": "fractions", "polygon": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}
    Path("zones.json").write_text(json.dumps({"zones": [zone]}))
    write_video(Path("station.mp4"), [numbered(number) for number in range(30)])
    blocks = BLOCK.findall((ROOT / "docs/python.md").read_text())
    assert len(blocks) >= 9
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "missing.jpg cannot be read: No such file or directory." in shown
    assert Path("overlay.png").stat().st_size > 1000
    assert names["counts"][1] is None  # type: ignore[index]
