"""A huge image is counted within a fixed budget of memory: tiles are cut one by one, never all at once."""

import subprocess
import sys
from pathlib import Path

import pytest
from memory import PRINT_PEAK_MIB
from toy import toy_model

from uepnet.model.artifact import Tiling
from uepnet.model.runtime import BUNDLED

BUDGET_MIB = 1000  # all of the process: Python, ONNX Runtime, the model, and 69 MiB of pixels

COUNT = f"""
import sys
import numpy as np
from uepnet.model.count import Counter

Counter(sys.argv[1], device="cpu").count(np.full((4000, 6000, 3), 90, np.uint8))
{PRINT_PEAK_MIB}
"""


def peak_mib(model: Path) -> float:
    done = subprocess.run([sys.executable, "-c", COUNT, str(model)], capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.parametrize("scale", [1.0, 1.4])
def test_6000x4000_pixels_are_never_held_as_tiles_or_at_another_size(tmp_path: Path, scale: float) -> None:
    model = toy_model(tmp_path, tiling=Tiling(tile=1024, halo=64), scale=scale)
    assert peak_mib(model) < 300


def test_6000x4000_pixels_stay_within_the_budget_with_the_bundled_model() -> None:
    if not (BUNDLED / "artifact.json").exists():
        pytest.skip("the bundled model is not in this checkout")
    assert peak_mib(BUNDLED) < BUDGET_MIB
