"""fp32 graph -> int8 graph: static, per channel, with the layers in float that int8 would spoil.

Which those are is measured. If the fully quantised graph is off, every layer is quantised alone and ranked by
what it does to the cells' counts; the worst stay in float, more of them until the graph fits.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import create_calibrator
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from uepnet.model.artifact import Precision
from uepnet.training.parity import Difference, Probe

QUANTISED = ("Conv", "Relu", "Clip", "MaxPool", "Resize", "Concat", "Add")
RANKED = ("Conv", "Concat", "Add")  # the others follow their input
MARGIN = 0.5  # aim at this share of the limit: the ranges were fitted to the tiles that are measured here
STEPS = (1, 2, 3, 5, 8, 12, 18, 27, 40)  # how many layers stay in float, tried in turn


class Bench(Protocol):
    def place(self, precision: Precision, model: onnx.ModelProto) -> None: ...

    def measure(self, precision: Precision) -> Difference: ...


def quantise(
    model: onnx.ModelProto, probes: Sequence[Probe], bench: Bench, limit: float, watch: Callable[[str], None]
) -> onnx.ModelProto:
    """The int8 graph within `MARGIN * limit` that keeps fewest layers in float, else the nearest to it."""
    watch("calibrating int8")
    model = onnx.shape_inference.infer_shapes(model)
    ranges = _ranges(model, probes)
    # The first layer sees three channels: it costs little, and in float it takes the normalised tile as it is.
    first, *layers = (node.name for node in model.graph.node if node.op_type in RANKED)

    def attempt(kept: Sequence[str]) -> tuple[Difference, onnx.ModelProto]:
        candidate = _quantised(model, ranges, [first, *kept])
        bench.place("int8", candidate)
        return bench.measure("int8"), candidate

    best = attempt([])
    watch(f"int8 in all but the first layer: counts off by {best[0].count_difference:.2%}")
    if best[0].count_difference <= MARGIN * limit:
        return best[1]
    watch(f"measuring {len(layers)} layers one by one")
    harm = {name: attempt([other for other in layers if other != name])[0].cell_difference for name in layers}
    ranking = sorted(layers, key=lambda name: harm[name], reverse=True)
    for number in (step for step in STEPS if step < len(layers)):
        latest = attempt(ranking[:number])
        watch(f"int8 but for {number + 1} layers: counts off by {latest[0].count_difference:.2%}")
        if latest[0].count_difference < best[0].count_difference:
            best = latest
        if best[0].count_difference <= MARGIN * limit:
            break
    return best[1]


def quantise_blindly(model: onnx.ModelProto, probes: Sequence[Probe]) -> onnx.ModelProto:
    """int8 in all but the first layer, whatever it does to the counts: for timing."""
    model = onnx.shape_inference.infer_shapes(model)
    first = next(node.name for node in model.graph.node if node.op_type in RANKED)
    return _quantised(model, _ranges(model, probes), [first])


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, probes: Sequence[Probe]) -> None:
        self._feeds = iter([{"tiles": probe.pixels[np.newaxis]} for probe in probes])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def _ranges(model: onnx.ModelProto, probes: Sequence[Probe]) -> Any:
    """The smallest and largest value of every tensor over the probes."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "model.onnx"
        onnx.save(model, plain)
        calibrator = create_calibrator(
            plain,
            list(QUANTISED),
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=CalibrationMethod.MinMax,
        )
        calibrator.collect_data(_Reader(probes))
        return calibrator.compute_data()


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
    quantised.metadata_props.add(key="float_layers", value=" ".join(kept))
    return quantised
