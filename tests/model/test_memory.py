"""A huge image is counted within a fixed budget of memory: tiles are cut one by one, never all at once."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.engines import need_engine
from support.memory import PRINT_PEAK_MIB
from support.toy import toy_model

from uepnet.model.artifact import Tiling
from uepnet.model.runtime import BUNDLED

BUDGET_MIB = 1000  # all of the process: Python, ONNX Runtime, the model, and 69 MiB of pixels

COUNT = f"""
import sys
import numpy as np
from uepnet.model.counter import Counter

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


MANY = f"""
import re, sys
from pathlib import Path
import numpy as np
from uepnet.model.counter import Counter


def now_mib():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024


counter = Counter(sys.argv[1], device="cpu", engine=sys.argv[2], threads=1)
random = np.random.default_rng(0)
for number in range(500):
    height, width = random.integers(64, 256, 2)
    counter.count(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
    if number == 150:
        print(now_mib())
print(now_mib())
{PRINT_PEAK_MIB}
"""


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_500_images_of_mixed_sizes_do_not_make_the_process_grow(engine: str) -> None:
    """OpenVINO compiles for each new shape: its cache is bounded, or it would take 6 MiB more each time."""
    need_engine(engine)
    if not (BUNDLED / "artifact.json").exists():
        pytest.skip("the bundled model is not in this checkout")
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(BUNDLED), engine], capture_output=True, text=True, check=True
    )
    early, late, peak = (float(line) for line in done.stdout.split())
    assert late - early < 60
    assert peak < 500
