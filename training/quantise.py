"""fp32 graph -> int8 graph: static, per channel, with those layers in float that lose too much accuracy in int8.

If the counts of the whole int8 graph are off, each layer is quantised alone and ranked by the difference that it makes
to the cells' counts, divided by its cost in float. The worst stay in float, more of them until the graph is within the
limit.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from uepnet.training.parity import Difference, Probe

QUANTISED = ("Conv", "Relu", "Clip", "MaxPool", "Resize", "Concat", "Add")
RANKED = ("Conv", "Concat", "Add")  # other layers have the precision of their input
STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 27, 40)  # numbers of layers in float that are tried
MOVING = 16  # cost of writing a value, in multiply-adds: a layer without arithmetic is not free
LEVELS = 255
BINS = 2048
SAMPLES = 200_000  # of one tensor of one tile, roughly


Measure = Callable[[onnx.ModelProto], Difference]


def quantise(
    model: onnx.ModelProto,
    probes: Sequence[Probe],
    *,
    measure: Measure,
    check: Measure,
    limit: float,
    watch: Callable[[str], None] = lambda _: None,
) -> onnx.ModelProto:
    """The int8 graph with the fewest layers in float whose counts are within the limit by `measure` and by `check`.

    The ranges are fitted to `probes`. `measure` compares on these, `check` on others. Without a graph within the limit
    the last one tried is returned: whoever asked for it measures it anyway, and can say how far off it is.
    """
    watch("calibrating int8")
    model = onnx.shape_inference.infer_shapes(model)
    ranges = _ranges(model, probes)
    ends = _ends(model.graph)
    layers = [node.name for node in model.graph.node if node.op_type in RANKED and node.name not in ends]
    ranking: list[str] = []
    candidate = model
    for number in (0, *(step for step in STEPS if step < len(layers))):
        if number and not ranking:
            watch(f"measuring {len(layers)} layers one by one")
            harm = {
                name: measure(_quantised(model, ranges, [*ends, *(other for other in layers if other != name)]))
                for name in layers
            }
            costs = _costs(model, probes[0])
            ranking = sorted(layers, key=lambda name: harm[name].cell_difference / costs[name], reverse=True)
        candidate = _quantised(model, ranges, [*ends, *ranking[:number]])
        difference = measure(candidate).count_difference
        watch(f"int8 in all but the ends and {number} layers: counts differ by {difference:.2%}")
        if difference <= limit and check(candidate).count_difference <= limit:
            break
    return candidate


def quantise_blindly(model: onnx.ModelProto, probes: Sequence[Probe]) -> onnx.ModelProto:
    """int8 in all but the first and last layers, without looking at the counts: for timing."""
    model = onnx.shape_inference.infer_shapes(model)
    return _quantised(model, _ranges(model, probes), _ends(model.graph))


def _ends(graph: onnx.GraphProto) -> list[str]:
    """The first layer, the last ones, and the nodes that turn logits into counts: they cost little and matter most."""
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
    extremes: dict[str, tuple[float, float]] = dict.fromkeys(names, (0.0, 0.0))  # 0 must be representable
    for name, values in _values(model, names, probes):
        low, high = extremes[name]
        extremes[name] = min(low, float(values.min())), max(high, float(values.max()))
    histograms = {name: np.zeros(BINS) for name in names}
    for name, values in _values(model, names, probes):
        step = 1 + values.size // SAMPLES // 2 * 2  # odd, so that it does not take the same columns of every row
        histograms[name] += np.histogram(values.ravel()[::step], BINS, extremes[name])[0]
    fitted = {name: _clipped(histograms[name], *extremes[name]) for name in names}
    return TensorsData(CalibrationMethod.MinMax, fitted)


def _costs(model: onnx.ModelProto, probe: Probe) -> dict[str, float]:
    """The approximate cost of each layer in float, in multiply-adds."""
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
    """The range with the least squared error: rare large values are clipped for finer steps between all others."""
    centres = low + (np.arange(BINS) + 0.5) / BINS * (high - low)
    best = (np.inf, low, high)
    for bottom in low * np.linspace(0.2, 1, 9) if low < 0 else [0.0]:
        for top in high * np.linspace(0.1, 1, 46) if high > 0 else [0.0]:
            rounding = ((top - bottom) / LEVELS) ** 2 / 12
            cut = np.maximum(np.maximum(bottom - centres, centres - top), 0.0) ** 2
            best = min(best, (float((histogram * np.where(cut > 0, cut, rounding)).sum()), bottom, top))
    return np.float32(best[1]), np.float32(best[2])


def _quantised(model: onnx.ModelProto, ranges: Any, kept: Sequence[str]) -> onnx.ModelProto:
    """A copy of the model in int8, except for the nodes in `kept`."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    quantiser = QDQQuantizer(
        copy,
        True,  # one scale per channel
        False,  # eight bits, not seven: for processors with an int8 dot product
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
