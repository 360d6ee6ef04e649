"""fp32 graph -> int8 graph: static, per channel, with the layers in float that int8 would spoil.

Which those are is measured. If the quantised graph is off, every layer is quantised alone and ranked by the harm it
does to the cells' counts for what it costs in float; the worst stay in float, more of them until the graph fits.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from uepnet.model.artifact import Precision
from uepnet.training.parity import Difference, Probe

QUANTISED = ("Conv", "Relu", "Clip", "MaxPool", "Resize", "Concat", "Add")
RANKED = ("Conv", "Concat", "Add")  # the others follow their input
STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 27, 40)  # how many layers stay in float, tried in turn
MOVING = 16  # what writing a value costs, in multiply-adds: a layer without arithmetic is not free
LEVELS = 255
BINS = 2048
SAMPLES = 200_000  # of a tensor of a tile, about


class Bench(Protocol):
    def place(self, precision: Precision, model: onnx.ModelProto) -> None: ...

    def measure(self, precision: Precision) -> Difference: ...


def quantise(
    model: onnx.ModelProto, probes: Sequence[Probe], bench: Bench, limit: float, watch: Callable[[str], None]
) -> Iterator[onnx.ModelProto]:
    """int8 graphs within the limit on the probes, more and more of their layers in float.

    Their ranges were fitted to these probes: a graph must be proven on others.
    """
    watch("calibrating int8")
    model = onnx.shape_inference.infer_shapes(model)
    ranges = _ranges(model, probes)
    ends = _ends(model.graph)
    layers = [node.name for node in model.graph.node if node.op_type in RANKED and node.name not in ends]

    def attempt(kept: Sequence[str]) -> tuple[Difference, onnx.ModelProto]:
        candidate = _quantised(model, ranges, [*ends, *kept])
        bench.place("int8", candidate)
        return bench.measure("int8"), candidate

    ranking: list[str] = []
    for number in (0, *(step for step in STEPS if step < len(layers))):
        if number and not ranking:
            watch(f"measuring {len(layers)} layers one by one")
            harm = {name: attempt([other for other in layers if other != name])[0].cell_difference for name in layers}
            costs = _costs(model, probes[0])
            ranking = sorted(layers, key=lambda name: harm[name] / costs[name], reverse=True)
        difference, candidate = attempt(ranking[:number])
        watch(f"int8 in all but the ends and {number} layers: counts off by {difference.count_difference:.2%}")
        if difference.count_difference <= limit:
            yield candidate


def quantise_blindly(model: onnx.ModelProto, probes: Sequence[Probe]) -> onnx.ModelProto:
    """int8 in all but the first and last layers, whatever it does to the counts: for timing."""
    model = onnx.shape_inference.infer_shapes(model)
    return _quantised(model, _ranges(model, probes), _ends(model.graph))


def _ends(graph: onnx.GraphProto) -> list[str]:
    """The first layer, the last ones, and all that turns logits into counts: they cost little and matter most."""
    makers = {output: node for node in graph.node for output in node.output}
    first = next(node.name for node in graph.node if node.op_type == "Conv")
    kept, tensors = {first}, [value.name for value in graph.output]
    while tensors:
        node = makers.get(tensors.pop())
        if node is not None and node.name not in kept:
            kept.add(node.name)
            tensors += [] if node.op_type == "Conv" else node.input
    return sorted(kept)


def _ranges(model: onnx.ModelProto, probes: Sequence[Probe]) -> Any:
    """A range for every tensor that may be quantised, fitted to its values over the probes."""
    makers = {output for node in model.graph.node for output in node.output}
    touched = {name for node in model.graph.node if node.op_type in QUANTISED for name in (*node.input, *node.output)}
    names = sorted(touched & makers)
    extremes: dict[str, tuple[float, float]] = dict.fromkeys(names, (0.0, 0.0))  # zero must be among the levels
    for name, values in _values(model, names, probes):
        low, high = extremes[name]
        extremes[name] = min(low, float(values.min())), max(high, float(values.max()))
    histograms = {name: np.zeros(BINS) for name in names}
    for name, values in _values(model, names, probes):
        step = 1 + values.size // SAMPLES // 2 * 2  # odd, lest it meet the same columns in every row
        histograms[name] += np.histogram(values.ravel()[::step], BINS, extremes[name])[0]
    fitted = {name: _clipped(histograms[name], *extremes[name]) for name in names}
    return TensorsData(CalibrationMethod.MinMax, fitted)


def _costs(model: onnx.ModelProto, probe: Probe) -> dict[str, float]:
    """What each layer costs in float, roughly, in multiply-adds."""
    nodes = {node.output[0]: node for node in model.graph.node if node.op_type in RANKED}
    weights = {entry.name: entry.dims for entry in model.graph.initializer}
    costs = {}
    for name, values in _values(model, list(nodes), [probe]):
        node = nodes[name]
        products = float(np.prod(weights[node.input[1]][1:])) if node.op_type == "Conv" else 0.0
        costs[node.name] = values.size * (products + MOVING)
    return costs


def _values(
    model: onnx.ModelProto, names: Sequence[str], probes: Sequence[Probe]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Every named tensor of every probe."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    known = {value.name for value in model.graph.output}
    for name in names:
        if name not in known:
            watched.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    session = InferenceSession(watched.SerializeToString(), providers=["CPUExecutionProvider"])
    for probe in probes:
        yield from zip(names, session.run(names, {"tiles": probe.pixels[np.newaxis]}), strict=True)


def _clipped(histogram: NDArray[np.float64], low: float, high: float) -> tuple[np.float32, np.float32]:
    """The range with the least squared error: rare large values are cut off for finer levels of all others."""
    centres = low + (np.arange(BINS) + 0.5) / BINS * (high - low)
    best = (np.inf, low, high)
    for bottom in low * np.linspace(0.2, 1, 9) if low < 0 else [0.0]:
        for top in high * np.linspace(0.1, 1, 46) if high > 0 else [0.0]:
            rounding = ((top - bottom) / LEVELS) ** 2 / 12
            cut = np.maximum(np.maximum(bottom - centres, centres - top), 0.0) ** 2
            best = min(best, (float((histogram * np.where(cut > 0, cut, rounding)).sum()), bottom, top))
    return np.float32(best[1]), np.float32(best[2])


def _quantised(model: onnx.ModelProto, ranges: Any, kept: Sequence[str]) -> onnx.ModelProto:
    """A copy of the model in int8 but for the nodes that are kept."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    quantiser = QDQQuantizer(
        copy,
        True,  # a scale a channel
        False,  # eight bits, not seven: meant for processors with a dot product of bytes
        QuantType.QInt8,
        QuantType.QUInt8,
        ranges,
        [],
        list(kept),
        list(QUANTISED),
        {},
    )
    quantiser.quantize_model()
    quantised: onnx.ModelProto = quantiser.model.model
    layers = [node.name for node in model.graph.node if node.op_type == "Conv" and node.name in kept]
    quantised.metadata_props.add(key="float_layers", value=" ".join(layers))
    return quantised
