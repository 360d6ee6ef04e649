import hashlib
import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper
from support.engines import need_engine
from support.toy import WHITE_COUNT, toy_artifact, toy_graph, toy_model

from uepnet.model.artifact import Artifact, ModelFile
from uepnet.model.decode import Maps
from uepnet.model.device import available_cores
from uepnet.model.errors import ArtifactError, DeviceError, InferenceError, ModelError
from uepnet.model.runtime import Runtime
from uepnet.model.runtime.onnxruntime_engine import CUDA, TENSORRT, tensorrt_options
from uepnet.model.shapes import ShapePolicy

sides = st.integers(1, 32).map(lambda blocks: 32 * blocks)


@pytest.fixture(scope="module", params=["onnxruntime", "openvino"])
def any_engine(request: pytest.FixtureRequest) -> str:
    return need_engine(request.param)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("toy"), "expectation")


def grey(height: int, width: int, level: int) -> NDArray[np.uint8]:
    return np.full((height, width, 3), level, np.uint8)


def counts_of(maps: Maps) -> NDArray[np.float32]:
    assert maps.counts is not None
    return maps.counts


def replace_graph(model_dir: Path, content: bytes) -> Path:
    """Put other bytes behind the fp32 file, with their true sha256."""
    artifact = Artifact.load(model_dir)
    entry = ModelFile(file="model.fp32.onnx", sha256=hashlib.sha256(content).hexdigest())
    (model_dir / entry.file).write_bytes(content)
    artifact.model_copy(update={"files": {"fp32": entry}}).save(model_dir)
    return model_dir


# What it answers


def test_each_tile_gets_its_own_maps_in_order(toy: Path, any_engine: str) -> None:
    runtime = Runtime(toy, engine=any_engine)
    tiles = np.stack([grey(64, 96, level) for level in (0, 255, 51)])
    counts = [counts_of(maps) for maps in runtime.run(tiles)]
    assert [count.shape for count in counts] == [(8, 12)] * 3
    assert [float(count.mean()) for count in counts] == pytest.approx([0, WHITE_COUNT, 1])


def test_classes_match_the_heads_borders(toy: Path, any_engine: str) -> None:
    runtime = Runtime(toy, engine=any_engine)
    (maps,) = runtime.run(grey(32, 32, 77)[np.newaxis])  # 1.51 people a cell
    assert [int(classes[0, 0]) for classes in maps.classes] == [3, 3]
    assert all(classes.dtype == np.uint8 for classes in maps.classes)


@pytest.mark.parametrize(
    ("decoding", "heads", "expected"),
    [("argmax", 2, False), ("expectation", 2, True), ("regression", 0, True)],
)
def test_every_decoding_has_its_outputs(
    tmp_path: Path, any_engine: str, decoding: Any, heads: int, expected: bool
) -> None:
    (maps,) = Runtime(toy_model(tmp_path, decoding), engine=any_engine).run(grey(32, 32, 255)[np.newaxis])
    assert (len(maps.classes), maps.counts is not None, maps.variance is not None) == (heads, expected, expected)


def test_run_tiles_reads_no_further_than_it_must(toy: Path) -> None:
    taken = []

    def tiles() -> Iterator[NDArray[np.uint8]]:
        for level in range(5):
            taken.append(level)
            yield grey(32, 32, level)

    answers = Runtime(toy).run_tiles(tiles())
    next(answers)
    assert len(taken) <= 2
    assert len(list(answers)) == 4


def test_many_threads_share_a_runtime(toy: Path, any_engine: str) -> None:
    runtime = Runtime(toy, engine=any_engine)
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda level: runtime.run([grey(64, 64, level)]), range(0, 250, 5))
    for level, (maps,) in zip(range(0, 250, 5), answers, strict=True):
        assert np.allclose(counts_of(maps), level / 255 * WHITE_COUNT)


def test_a_tile_that_is_no_multiple_of_32_is_refused(toy: Path) -> None:
    with pytest.raises(ValueError, match="multiples of 32, not 40x32"):
        Runtime(toy).run(grey(32, 40, 0)[np.newaxis])


# The shape policy


def test_the_cpu_takes_exact_shapes_one_at_a_time(toy: Path) -> None:
    runtime = Runtime(toy, device="cpu")
    assert runtime.padded_shape(96, 224) == (96, 224)
    assert runtime.batch_sizes == (1,)


@given(height=sides, width=sides, tile=st.sampled_from([256, 640, 1024]))
def test_buckets_hold_the_tile_and_never_exceed_the_largest(height: int, width: int, tile: int) -> None:
    policy = ShapePolicy.bucketed(tile, max_batch=8)
    height, width = min(height, tile), min(width, tile)
    padded = policy.padded_shape(height, width)
    assert height <= padded[0] <= tile and width <= padded[1] <= tile
    assert policy.padded_shape(*padded) == padded
    assert padded in {shape[1:] for shape in policy.warm_up_shapes(tile)}


@given(tiles=st.integers(1, 8))
def test_batches_are_the_smallest_bucket_that_holds_the_tiles(tiles: int) -> None:
    size = ShapePolicy.bucketed(1024, max_batch=8).batch_size(tiles)
    assert size in (1, 2, 4, 8) and size // 2 < tiles <= size


def test_a_small_image_does_not_pay_for_a_large_tile() -> None:
    assert ShapePolicy.bucketed(1024, max_batch=8).padded_shape(192, 320) == (256, 512)


@given(height=sides, width=sides, max_pixels=st.integers(1024, 2**25))
def test_a_batch_holds_no_more_pixels_than_allowed_unless_it_is_one_tile(
    height: int, width: int, max_pixels: int
) -> None:
    policy = ShapePolicy.bucketed(1536, 8, max_pixels)
    padded = policy.padded_shape(height, width)
    most = policy.most_tiles(*padded)
    assert most == 1 or most * padded[0] * padded[1] <= max_pixels
    assert (most, *padded) in set(policy.warm_up_shapes(1536))
    assert not [n for n, *shape in policy.warm_up_shapes(1536) if n > policy.most_tiles(*shape)]


def test_bucketed_batches_answer_as_exact_shapes_do(toy: Path) -> None:
    """The path CUDA takes, bound to the CPU's memory: pad, batch, run, crop."""
    random = np.random.default_rng(0)
    shapes = [(64, 96), (256, 256), (256, 32), (64, 64), (32, 224)] * 3
    tiles = [random.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]
    exact, bucketed = Runtime(toy), Runtime(toy)
    bucketed.policy = ShapePolicy((64, 128, 256), (1, 2, 4, 8))
    for one, other in zip(exact.run_tiles(iter(tiles)), bucketed.run_tiles(iter(tiles)), strict=True):
        np.testing.assert_array_equal(counts_of(one), counts_of(other))
        np.testing.assert_array_equal(one.classes, other.classes)


def test_a_batch_may_be_larger_than_the_largest_bucket(toy: Path) -> None:
    runtime = Runtime(toy)
    runtime.policy = ShapePolicy((64,), (1, 2, 4))
    tiles = np.stack([grey(32, 32, level) for level in range(11)])
    expected = pytest.approx([level / 255 * WHITE_COUNT for level in range(11)], rel=1e-5)
    assert [float(counts_of(maps).mean()) for maps in runtime.run(tiles)] == expected
    runtime.policy = ShapePolicy((64,), (1, 2, 4), max_pixels=2 * 64 * 64)
    assert [float(counts_of(maps).mean()) for maps in runtime.run(tiles)] == expected
    assert [float(counts_of(maps).mean()) for maps in runtime.run_tiles(iter(tiles))] == expected


def test_warm_up_runs_every_bucket(toy: Path) -> None:
    runtime = Runtime(toy)
    runtime.policy = ShapePolicy((64, 128), (1, 2))
    runtime.warm_up()
    assert len(set(runtime.policy.warm_up_shapes(128))) == 2 * 2 * 2


def test_a_failing_warm_up_refuses_to_start(tmp_path: Path, any_engine: str) -> None:
    model_dir = toy_model(tmp_path)
    model = toy_graph(Artifact.load(model_dir))
    # A reshape to 3x5 cells fits no tile of the warm-up. ONNX Runtime fails; OpenVINO may answer with 3x5 cells.
    model.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [3], [1, 3, 5]))
    model.graph.node.append(helper.make_node("Reshape", ["class_0", "shape"], ["reshaped"]))
    next(node for node in model.graph.node if node.output[0] == "classes_0").input[0] = "reshaped"
    runtime = Runtime(replace_graph(model_dir, model.SerializeToString()), engine=any_engine)
    failed, wrong = (
        "cpu could not run a batch of 1 tiles of 256x256",
        r"The model answered classes_0 of shape \(1, 3, 5\)",
    )
    with pytest.raises(DeviceError, match=f"Warm-up failed: ({failed}|{wrong})"):
        runtime.warm_up()


# What it refuses


def test_a_damaged_file_is_named(tmp_path: Path, any_engine: str) -> None:
    path = toy_model(tmp_path) / "model.fp32.onnx"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ModelError, match=r"model\.fp32\.onnx is damaged or of another model"):
        Runtime(tmp_path, engine=any_engine)


def test_a_file_that_is_no_onnx_model_is_named(tmp_path: Path, any_engine: str) -> None:
    replace_graph(toy_model(tmp_path), b"not a graph at all")
    with pytest.raises(ModelError, match=r"cannot load .*model\.fp32\.onnx"):
        Runtime(tmp_path, engine=any_engine)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (toy_model(tmp_path) / "model.fp32.onnx").unlink()
    with pytest.raises(ModelError, match=r"model\.fp32\.onnx cannot be read: No such file"):
        Runtime(tmp_path)


def test_a_directory_without_an_artifact_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="not a model directory"):
        Runtime(tmp_path)


def test_a_run_that_was_never_exported_says_how(tmp_path: Path) -> None:
    toy_artifact().save(tmp_path)
    with pytest.raises(ModelError, match="uepnet export"):
        Runtime(tmp_path)


def test_a_graph_of_another_artifact_is_refused(tmp_path: Path, any_engine: str) -> None:
    other = toy_artifact(expectation={"temperature": 2.0})
    replace_graph(toy_model(tmp_path), toy_graph(other).SerializeToString())
    with pytest.raises(ArtifactError, match="inference hashes differ"):
        Runtime(tmp_path, engine=any_engine)


def test_a_graph_without_the_outputs_of_its_decoding_is_refused(tmp_path: Path, any_engine: str) -> None:
    model_dir = toy_model(tmp_path, "expectation")
    model = toy_graph(Artifact.load(model_dir))
    del model.graph.output[-1]
    replace_graph(model_dir, model.SerializeToString())
    with pytest.raises(ModelError, match=r"must have the inputs and outputs .*variance"):
        Runtime(tmp_path, engine=any_engine)


def test_an_answer_of_the_wrong_shape_is_refused(tmp_path: Path, any_engine: str) -> None:
    model_dir = toy_model(tmp_path)
    model = toy_graph(Artifact.load(model_dir))
    next(node for node in model.graph.node if node.op_type == "AveragePool").attribute[0].ints[:] = [16, 16]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    content = model.SerializeToString()
    with pytest.raises(InferenceError, match="answered classes_0 of shape"):
        Runtime(replace_graph(model_dir, content), engine=any_engine).run(grey(64, 64, 0)[np.newaxis])


# Devices


def test_the_cpu_is_no_fallback_on_a_machine_without_a_gpu(toy: Path) -> None:
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    runtime = Runtime(toy)
    assert (runtime.device, runtime.provider) == ("cpu", "CPUExecutionProvider")
    assert runtime.fallback is None and runtime.device_memory() is None


@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_cuda_refuses_to_start_without_cuda(toy: Path, device: str) -> None:
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    with pytest.raises(DeviceError, match=f"Device {device} cannot run the model: .* built without CUDA"):
        Runtime(toy, device=device)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda0", "CPU", "cpu:0", "openvino", ""])
def test_an_unknown_device_lists_the_known_ones(toy: Path, device: str) -> None:
    with pytest.raises(DeviceError, match="must be auto, cpu, cuda, tensorrt or intel-gpu"):
        Runtime(toy, device=device)


@pytest.mark.filterwarnings("ignore:Specified provider 'CUDAExecutionProvider'")
def test_cuda_that_is_compiled_in_but_does_not_load_is_found_out(
    toy: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ONNX Runtime claims CUDA; the session it then makes runs on the CPU, as with a missing library."""
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, "CPUExecutionProvider"])
    runtime = Runtime(toy)
    assert runtime.device == "cpu" and runtime.batch_sizes == (1,)
    assert runtime.fallback is not None and "ONNX Runtime could not load CUDA" in runtime.fallback
    assert runtime.fallback in caplog.text
    with pytest.raises(DeviceError, match="Device cuda cannot run the model: ONNX Runtime could not load CUDA"):
        Runtime(toy, device="cuda")


def test_threads_default_to_the_cores_this_process_may_use(toy: Path) -> None:
    assert Runtime(toy).threads == available_cores() >= 1
    assert Runtime(toy, threads=3).threads == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tensorrt"}, "Device tensorrt cannot run the model: .* built without TensorRT"),
        ({"device": "cuda", "engine": "openvino"}, "OpenVINO runs on cpu and intel-gpu, not on cuda"),
        ({"device": "cuda", "precision": "bf16"}, "bf16 runs on the CPU alone"),
        ({"device": "intel-gpu", "engine": "onnxruntime"}, "ONNX Runtime does not run on intel-gpu"),
        ({"device": "intel-gpu:7"}, "OpenVINO finds no intel-gpu:7 here; it finds CPU"),
    ],
)
def test_a_device_that_cannot_run_the_model_is_refused(toy: Path, options: dict[str, str], message: str) -> None:
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    need_engine("openvino")
    with pytest.raises(DeviceError, match=message):
        Runtime(toy, **options)  # type: ignore[arg-type]


def test_it_says_in_one_line_what_runs(toy: Path, any_engine: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        runtime = Runtime(toy, device="cpu", engine=any_engine)
    assert str(runtime).startswith(f"toy 1 in fp32 on cpu, {any_engine} {runtime.engine_version}")
    assert str(runtime) in caplog.text and "The engine was asked for." in caplog.text


def test_tensorrt_gets_one_profile_for_all_buckets_and_keeps_its_engines(tmp_path: Path) -> None:
    """The options alone: TensorRT itself needs a GPU."""
    policy = ShapePolicy.bucketed(1024, max_batch=4)
    options = tensorrt_options(1, "fp16", policy, 1024, tmp_path / "cache")
    assert options["trt_profile_min_shapes"] == "tiles:1x256x256x3"
    assert options["trt_profile_max_shapes"] == "tiles:4x1024x1024x3"
    assert options["trt_fp16_enable"] == "1" and options["device_id"] == "1"
    assert Path(options["trt_engine_cache_path"]).is_dir()


# On a CUDA device


@pytest.fixture
def cuda() -> str:
    if CUDA not in onnxruntime.get_available_providers():
        pytest.skip("needs an ONNX Runtime with CUDA and a CUDA device")
    return "cuda"


@pytest.mark.gpu
def test_cuda_answers_as_the_cpu_does(toy: Path, cuda: str) -> None:
    tiles = np.random.default_rng(1).integers(0, 256, (3, 256, 256, 3), dtype=np.uint8)
    on_cuda = Runtime(toy, device=cuda)
    assert on_cuda.provider == CUDA and on_cuda.fallback is None
    for one, other in zip(Runtime(toy, device="cpu").run(tiles), on_cuda.run(tiles), strict=True):
        np.testing.assert_allclose(counts_of(one), counts_of(other), rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 11])
def test_cuda_batches_and_pads_without_a_trace(toy: Path, cuda: str, n: int) -> None:
    tiles = np.random.default_rng(n).integers(0, 256, (n, 96, 160, 3), dtype=np.uint8)
    for one, other in zip(Runtime(toy, device="cpu").run(tiles), Runtime(toy, device=cuda).run(tiles), strict=True):
        np.testing.assert_allclose(counts_of(one), counts_of(other), rtol=1e-4)


@pytest.mark.gpu
def test_cuda_warms_up_and_tells_its_memory(toy: Path, cuda: str) -> None:
    runtime = Runtime(toy, device=cuda)
    runtime.warm_up()
    memory = runtime.device_memory()
    assert memory is not None and 0 < memory[0] <= memory[1]


@pytest.mark.gpu
def test_a_cuda_device_that_is_not_there_is_refused_and_auto_is_not_misled(toy: Path, cuda: str) -> None:
    with pytest.raises(DeviceError, match="Device cuda:63 cannot run the model"):
        Runtime(toy, device="cuda:63")
    assert Runtime(toy, device="auto").provider == CUDA


@pytest.mark.gpu
def test_tensorrt_answers_as_the_cpu_does(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if TENSORRT not in onnxruntime.get_available_providers():
        pytest.skip("needs an ONNX Runtime with TensorRT, its libraries and a CUDA device")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tiles = np.random.default_rng(1).integers(0, 256, (3, 256, 256, 3), dtype=np.uint8)
    on_tensorrt = Runtime(toy, device="tensorrt")
    on_tensorrt.warm_up()
    assert on_tensorrt.provider == TENSORRT and any(tmp_path.rglob("*"))
    for one, other in zip(Runtime(toy, device="cpu").run(tiles), on_tensorrt.run(tiles), strict=True):
        np.testing.assert_allclose(counts_of(one), counts_of(other), rtol=1e-3)


def test_the_toy_is_a_complete_model_directory(toy: Path, tmp_path: Path) -> None:
    """It can be moved: nothing in it points elsewhere."""
    shutil.copytree(toy, tmp_path / "elsewhere")
    assert Runtime(tmp_path / "elsewhere").artifact.name == "toy"
