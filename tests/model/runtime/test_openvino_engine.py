"""What is OpenVINO's own: explicit precision and threads, shapes that get a graph of their own, bounded caches."""

import logging
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.toy import WHITE_COUNT, toy_model

from uepnet.model.artifact import Artifact, Precision
from uepnet.model.device import computes_bfloat16
from uepnet.model.runtime import Runtime

if find_spec("openvino") is None:
    pytest.skip("openvino is not installed", allow_module_level=True)

from uepnet.model.runtime.openvino_engine import FIXED_SHARE, MAX_FIXED, RECENT, OpenVinoEngine

OFTEN = int(FIXED_SHARE * RECENT)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("toy"), "expectation", precisions=("fp32", "int8"))


def engine_for(model: Path, precision: Precision = "fp32", threads: int = 1) -> OpenVinoEngine:
    return OpenVinoEngine(model, Artifact.load(model), precision, threads)


def batch(height: int, width: int, level: int = 255) -> NDArray[np.uint8]:
    return np.full((1, height, width, 3), level, np.uint8)


def compiled(engine: OpenVinoEngine) -> Any:
    return engine._any_shape.get_compiled_model()


def feed(engine: OpenVinoEngine, shapes: list[tuple[int, int]]) -> None:
    for height, width in shapes:
        counts = engine.infer(batch(height, width))["counts"]
        assert counts.shape == (1, height // 8, width // 8)
        assert float(counts.mean()) == pytest.approx(WHITE_COUNT, rel=1e-3)


SIGNALLED = """
import os, signal, sys, threading
from pathlib import Path
from uepnet.model.artifact import Artifact
from uepnet.model.runtime.openvino_engine import OpenVinoEngine
import numpy as np

model = Path(sys.argv[1])
engines = [OpenVinoEngine(model, Artifact.load(model), "fp32", 1) for _ in range(2)]
for engine in engines:
    engine.infer(np.zeros((1, 64, 64, 3), np.uint8))
del engine
if sys.argv[2] == "thread":
    other = threading.Thread(target=engines.clear)
    other.start()
    other.join()
else:
    del engines[0]  # before the one that was made after it
    engines.clear()
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("dropped", ["thread", "in order"])
def test_a_signal_is_handled_after_engines_were_dropped(toy: Path, dropped: str) -> None:
    command = [sys.executable, "-c", SIGNALLED, str(toy), dropped]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stdout) == (0, "handled\n"), result.stderr


@pytest.mark.parametrize(("precision", "computed"), [("fp32", "f32"), ("int8", "f32"), ("bf16", "bf16")])
def test_the_precision_is_the_one_asked_for_and_never_openvinos_default(
    toy: Path, precision: Precision, computed: str
) -> None:
    if precision == "bf16" and not computes_bfloat16():
        pytest.skip("this processor has no bfloat16 arithmetic")
    hint = compiled(engine_for(toy, precision)).get_property("INFERENCE_PRECISION_HINT")
    assert hint.get_type_name() == computed


def test_threads_and_streams_are_set(toy: Path) -> None:
    model = compiled(engine_for(toy, threads=1))
    assert model.get_property("INFERENCE_NUM_THREADS") == 1
    assert model.get_property("NUM_STREAMS") == 1
    assert model.get_property("ENABLE_CPU_PINNING") is False


def test_a_shape_that_keeps_coming_gets_a_graph_of_its_own(toy: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = engine_for(toy)
    feed(engine, [(64, 96)] * (OFTEN - 1))
    assert engine.fixed_shapes == ()
    with caplog.at_level(logging.INFO):
        feed(engine, [(64, 96)] * 2)
    assert engine.fixed_shapes == ((1, 64, 96, 3),)
    assert "tiles of 96x64 have a graph of their own" in caplog.text
    feed(engine, [(32, 32), (64, 96), (96, 64)])  # all others still run


def test_mixed_shapes_compile_nothing(toy: Path) -> None:
    engine = engine_for(toy)
    feed(engine, [(32 * (1 + turn % 7), 32 * (1 + turn % 5)) for turn in range(2 * RECENT)])
    assert engine.fixed_shapes == ()


def test_the_graphs_are_bounded_and_a_camera_that_left_makes_room(toy: Path) -> None:
    engine = engine_for(toy)
    cameras = [(64, 96), (96, 64), (32, 64)]
    feed(engine, [camera for _ in range(RECENT) for camera in cameras])
    assert len(engine.fixed_shapes) == MAX_FIXED
    feed(engine, [(128, 128)] * RECENT)
    assert len(engine.fixed_shapes) == MAX_FIXED and (1, 128, 128, 3) in engine.fixed_shapes


def test_a_graph_of_its_own_answers_as_the_one_for_all_shapes(toy: Path) -> None:
    engine = engine_for(toy)
    tiles = np.random.default_rng(0).integers(0, 256, (1, 64, 96, 3), dtype=np.uint8)
    before = engine.infer(tiles)
    feed(engine, [(64, 96)] * OFTEN)
    after = engine.infer(tiles)
    assert engine.fixed_shapes and set(before) == set(after)
    for name in before:
        np.testing.assert_allclose(before[name], after[name], rtol=1e-5)


def test_bf16_without_a_recorded_parity_warns(toy: Path, caplog: pytest.LogCaptureFixture) -> None:
    if not computes_bfloat16():
        pytest.skip("this processor has no bfloat16 arithmetic")
    runtime = Runtime(toy, precision="bf16")
    assert (runtime.engine, runtime.precision) == ("openvino", "bf16")
    assert "never compared with torch in bf16" in caplog.text
