"""docs/runtime.md cannot drift: its commands are parsed, its limits and defaults are those of the code."""

import re
import shlex

import pytest
from support.paths import ROOT

from uepnet.cli import build_parser
from uepnet.model.artifact import Artifact
from uepnet.model.runtime import BUNDLED, LIMITS, WORTHWHILE_SPEED

GUIDE = (ROOT / "docs/runtime.md").read_text()


@pytest.mark.parametrize("line", re.findall(r"^uepnet .*", GUIDE, re.MULTILINE))
def test_every_command_shown_is_understood(line: str) -> None:
    words = shlex.split(line)[1:]
    assert build_parser(only=words[0]).parse_args(words).command == words[0]


def test_the_limits_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (fp32|fp16|bf16|int8) \| ([\d.]+) % \|", GUIDE, re.MULTILINE)
    assert {name: float(limit) / 100 for name, limit in rows} == pytest.approx(LIMITS)
    assert f"{WORTHWHILE_SPEED} times as fast" in GUIDE


def test_the_tile_and_halo_in_bold_are_the_bundled_model_s() -> None:
    tiling = Artifact.load(BUNDLED).tiling
    assert f"| **{tiling.tile}** | **{tiling.halo}** |" in GUIDE
