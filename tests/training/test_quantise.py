"""A small graph in which one layer loses too much in int8: the search must find exactly that one."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from uepnet.training.parity import Difference, Probe
from uepnet.training.quantise import BINS, _clipped, quantise


def graph(outlier: float) -> onnx.ModelProto:
    """tiles -> six convolutions in a row -> counts. The second also makes a channel `outlier` times as large as the
    others, which the third ignores: in int8 that channel takes all the levels, and the counts become useless."""
    rng = np.random.default_rng(0)
    names = ("first", "second", "third", "fourth", "fifth", "sixth")
    weights = {name: rng.uniform(0.1, 1, (4, 4, 1, 1)).astype(np.float32) / 4 for name in names}
    weights["first"] = np.full((4, 3, 1, 1), 1 / 765, np.float32)
    weights["second"][3] = outlier
    weights["third"][:, 3] = 0
    nodes = [
        helper.make_node("Transpose", ["tiles"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Cast", ["planes"], ["x"], to=TensorProto.FLOAT),
    ]
    for before, name in pairwise(("x", *names)):
        nodes.append(helper.make_node("Conv", [before, f"{name}.weight"], [name], name=name))
    nodes.append(helper.make_node("ReduceMean", ["sixth", "channel"], ["counts"], keepdims=0))
    constants = [numpy_helper.from_array(value, f"{name}.weight") for name, value in weights.items()]
    constants.append(helper.make_tensor("channel", TensorProto.INT64, [1], [1]))
    tiles = helper.make_tensor_value_info("tiles", TensorProto.UINT8, ["n", "h", "w", 3])
    counts = helper.make_tensor_value_info("counts", TensorProto.FLOAT, ["n", "h", "w"])
    made = helper.make_graph(nodes, "six", [tiles], [counts], constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def counts_of(model: onnx.ModelProto, probes: Sequence[Probe]) -> list[NDArray[np.float32]]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [session.run(None, {"tiles": probe.pixels[np.newaxis]})[0] for probe in probes]


class Measure:
    """The difference of a graph's counts from those of the float graph on the same tiles."""

    def __init__(self, model: onnx.ModelProto, probes: Sequence[Probe]) -> None:
        self.probes, self.truth = probes, counts_of(model, probes)
        self.attempts = 0

    def __call__(self, model: onnx.ModelProto) -> Difference:
        self.attempts += 1
        pairs = list(zip(counts_of(model, self.probes), self.truth, strict=True))
        relative = [abs(float(a.sum() - b.sum())) / float(b.sum()) for a, b in pairs]
        cells = sum(float(np.abs(a - b).sum()) for a, b in pairs) / sum(float(b.sum()) for _, b in pairs)
        return Difference(len(pairs), 1.0, float(np.mean(relative)), cells, max(relative), "")


def quantised_with(
    model: onnx.ModelProto, probes: Sequence[Probe], measure: Measure, check: Callable[[onnx.ModelProto], Difference]
) -> onnx.ModelProto:
    return quantise(model, probes, measure=measure, check=check, limit=0.02)


@pytest.fixture
def probes() -> list[Probe]:
    rng = np.random.default_rng(1)
    sizes = ((64, 64), (32, 96))  # ranges must come from tiles of different sizes too
    return [Probe(str(size), rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]


def float_layers(model: onnx.ModelProto) -> list[str]:
    return next(entry.value for entry in model.metadata_props if entry.key == "float_layers").split()


def test_a_graph_that_loses_nothing_in_int8_has_only_its_first_and_last_layer_in_float(probes: list[Probe]) -> None:
    model = graph(outlier=0.2)
    measure = Measure(model, probes)
    quantised = quantised_with(model, probes, measure, Measure(model, probes))
    assert float_layers(quantised) == ["first", "sixth"] and measure.attempts == 1
    weights = {entry.name: entry.data_type for entry in quantised.graph.initializer}
    assert weights["second.weight_quantized"] == weights["third.weight_quantized"] == TensorProto.INT8
    scale = next(entry for entry in quantised.graph.initializer if entry.name == "second.weight_scale")
    assert list(scale.dims) == [4]  # one per channel


def test_the_layers_that_lose_too_much_in_int8_stay_in_float(probes: list[Probe]) -> None:
    model = graph(outlier=3000.0)
    measure = Measure(model, probes)
    messages: list[str] = []
    quantised = quantise(model, probes, measure=measure, check=measure, limit=0.02, watch=messages.append)
    assert float_layers(quantised) == ["first", "second", "third", "sixth"]
    assert "measuring 4 layers one by one" in messages
    assert measure(quantised).count_difference <= 0.01


def test_a_graph_that_fails_on_other_tiles_gets_more_layers_in_float(probes: list[Probe]) -> None:
    model = graph(outlier=0.2)
    kept: list[set[str]] = []

    def check(candidate: onnx.ModelProto) -> Difference:
        kept.append(set(float_layers(candidate)))
        return Difference(1, 1.0, 0.0 if len(kept) == 3 else 1.0, 0.0, 0.0, "")

    quantised = quantised_with(model, probes, Measure(model, probes), check)
    assert len(kept) == 3 and all(fewer < more for fewer, more in pairwise(kept))
    assert set(float_layers(quantised)) == kept[-1]


def test_without_a_graph_within_the_limit_the_last_one_is_returned(probes: list[Probe]) -> None:
    model = graph(outlier=0.2)
    quantised = quantised_with(model, probes, Measure(model, probes), lambda _: Difference(1, 1.0, 1.0, 0.0, 0.0, ""))
    assert len(float_layers(quantised)) == 5  # of 6: the search ends before all are in float


def test_a_rare_large_value_does_not_take_the_levels_of_all_others() -> None:
    histogram = np.zeros(BINS)
    histogram[:100] = 1000.0
    low, high = _clipped(histogram, 0.0, 1.0)
    assert low == 0 and high == pytest.approx(0.1, abs=0.02)
    histogram[-1] = 5000.0  # no longer rare
    assert _clipped(histogram, 0.0, 1.0)[1] == pytest.approx(1.0)


def test_a_range_holds_zero_whatever_the_values() -> None:
    assert _clipped(np.ones(BINS), 0.0, 0.0) == (0, 0)
    low, high = _clipped(np.ones(BINS), -2.0, 1.0)
    assert low == pytest.approx(-2.0) and high == pytest.approx(1.0)


def test_the_model_that_was_given_is_not_changed(probes: list[Probe]) -> None:
    model = graph(outlier=0.2)
    before = model.SerializeToString(deterministic=True)
    quantised_with(model, probes, Measure(model, probes), Measure(model, probes))
    assert model.SerializeToString(deterministic=True) == before
