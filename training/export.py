"""Weights -> ONNX, one file a precision, each compared with torch or refused.

The graph is `training.graph.Graph`, so torch and ONNX compute the same thing by construction; the comparison
runs the written files through `model.runtime`, the path that is served.
"""

import copy
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from uepnet.model.artifact import Artifact, ModelFile, Parity, Precision
from uepnet.model.decode import Maps
from uepnet.model.errors import DataError, ModelError
from uepnet.model.runtime import LIMITS, Runtime
from uepnet.training.evaluate import torch_runner
from uepnet.training.graph import Graph
from uepnet.training.parity import Difference, Probe, answers, compare, occupied_classes
from uepnet.training.prepare import load_network
from uepnet.training.quantise import quantise

OPSET = 20  # ONNX Runtime reads it since 1.18, on CPU and CUDA
MIN_CLASSES = 10
MAX_HALF = 20_000.0  # fp16 ends at 65504; activations on other images may be larger than on the probes

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Export:
    artifact: Artifact
    refused: dict[Precision, str]  # why, a sentence each


def export(
    run: Path,
    out: Path,
    precisions: Sequence[Precision],
    probes: Sequence[Probe],
    calibration: Sequence[Probe],
    unproven: bool = False,
    watch: Watch = lambda _: None,
) -> Export:
    """Write the model directory `out`: a file for every precision that stays within its limit.

    `probes` are compared, `calibration` gives int8 its ranges. `unproven` exports although torch answers with
    too few classes on the probes for the comparison to mean anything. Nothing is written if nothing is proven.
    """
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty: choose another folder for the model.")
    artifact = Artifact.load(run)
    network = load_network(run, artifact)
    truth = torch_answers(network, artifact, probes)
    check_occupied(truth, artifact, unproven)
    out.parent.mkdir(parents=True, exist_ok=True)
    with _workshop(out) as folder:
        bench = Workbench(folder, artifact, probes, truth)
        watch("exporting fp32")
        bench.place("fp32", to_onnx(folded(network), artifact))
        files: dict[Precision, ModelFile] = {}
        refused: dict[Precision, str] = {}
        for precision in precisions:
            try:
                _make(precision, network, bench, calibration, watch)
                files[precision] = bench.prove(precision)
                watch(_report(precision, files[precision]))
            except ModelError as error:
                refused[precision] = str(error)
        if not files:
            raise ModelError(" ".join(refused.values()))
        for precision in ("fp32", *refused):
            if precision not in files:
                (folder / file_name(precision)).unlink(missing_ok=True)
        exported = artifact.model_copy(update={"files": files})
        exported.save(folder)
        if out.exists():
            out.rmdir()
        shutil.move(folder, out)
    return Export(exported, refused)


def _make(
    precision: Precision, network: nn.Module, bench: "Workbench", calibration: Sequence[Probe], watch: Watch
) -> None:
    """Place the file of a precision; fp32 is there already."""
    if precision == "fp16":
        watch("exporting fp16")
        check_half_range(network, bench.artifact, bench.probes)
        bench.place("fp16", to_onnx(Half(folded(network)), bench.artifact))
    elif precision == "int8":
        fp32 = onnx.load(bench.folder / file_name("fp32"))
        truth = torch_answers(network, bench.artifact, calibration)
        own = Workbench(bench.folder, bench.artifact, calibration, truth)
        for candidate in quantise(fp32, calibration, own, LIMITS["int8"], watch):
            bench.place("int8", candidate)
            if bench.measure("int8").count_difference <= LIMITS["int8"]:
                break


def torch_answers(network: nn.Module, artifact: Artifact, probes: Sequence[Probe]) -> list[Maps]:
    return answers(torch_runner(network, artifact, torch.device("cpu")), probes)


class Workbench:
    """A model directory in the making: takes graphs, and measures them through the runtime."""

    def __init__(self, folder: Path, artifact: Artifact, probes: Sequence[Probe], truth: Sequence[Maps]) -> None:
        self.folder = folder
        self.artifact = artifact
        self.probes = probes
        self.truth = truth

    def place(self, precision: Precision, model: onnx.ModelProto) -> None:
        (self.folder / file_name(precision)).write_bytes(model.SerializeToString(deterministic=True))

    def runtime(self, precision: Precision) -> Runtime:
        path = self.folder / file_name(precision)
        entry = ModelFile(file=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
        self.artifact.model_copy(update={"files": {precision: entry}}).save(self.folder)
        return Runtime(self.folder, device="cpu", precision=precision)

    def measure(self, precision: Precision) -> Difference:
        runtime = self.runtime(precision)
        return compare(self.probes, self.truth, answers(runtime.run_tiles, self.probes), self.artifact)

    def prove(self, precision: Precision) -> ModelFile:
        """The file's record with what was measured; past the limit a refusal that says where."""
        difference = self.measure(precision)
        if difference.count_difference > LIMITS[precision]:
            raise ModelError(
                f"{precision} was refused: its counts differ from torch's by "
                f"{difference.count_difference:.2%} on average, the limit is {LIMITS[precision]:.1%}; worst: "
                f"{difference.worst}; {difference.class_agreement:.1%} of the classes agree."
            )
        path = self.folder / file_name(precision)
        parity = Parity(
            tiles=difference.tiles,
            class_agreement=difference.class_agreement,
            count_difference=difference.count_difference,
            worst_tile=difference.worst_tile,
            speed=1.0 if precision == "fp32" else self.speed(precision),
        )
        return ModelFile(file=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), parity=parity)

    def speed(self, precision: Precision, rounds: int = 5) -> float:
        """Times as fast as fp32 on the largest probe; taken in turns, so that a busy moment hits both."""
        tile = max((probe.pixels for probe in self.probes), key=lambda pixels: pixels.size)
        runtimes = {name: self.runtime(name) for name in ("fp32", precision)}
        best = dict.fromkeys(runtimes, float("inf"))
        for _ in range(rounds):
            for name, runtime in runtimes.items():
                started = time.perf_counter()
                runtime.run([tile])
                best[name] = min(best[name], time.perf_counter() - started)
        return best["fp32"] / best[precision]


class Half(nn.Module):
    """The network in fp16 between fp32 tiles and fp32 logits: what follows (softmax, sums) needs the range."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).half()

    def forward(self, x: Tensor) -> list[Tensor]:
        return [scores.float() for scores in self.network(x.half())]


def folded(network: nn.Module) -> nn.Module:
    """A copy whose batch norms are part of the convolutions before them: half the nodes, the same function."""
    network = copy.deepcopy(network).eval()
    for block in (module for module in network.modules() if isinstance(module, nn.Sequential)):
        for (name, layer), (after, norm) in pairwise(list(block.named_children())):
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(block, name, fuse_conv_bn_eval(layer, norm))
                setattr(block, after, nn.Identity())
    return network


def to_onnx(network: nn.Module, artifact: Artifact) -> onnx.ModelProto:
    """The graph of the contract: uint8 tiles in, class maps (and counts) out, any batch, height and width."""
    outputs = [f"classes_{head}" for head in range(len(artifact.heads))]
    outputs += [] if artifact.decoding == "argmax" else ["counts", "variance"]
    side = artifact.multiple
    # Traced at one shape, because symbolic ones take the exporter four times as long. No layer depends on it:
    # the comparison with torch runs on several shapes and would find one that does.
    program = torch.onnx.export(
        Graph(network, artifact).eval(),
        (torch.zeros(2, 2 * side, 3 * side, 3, dtype=torch.uint8),),
        dynamo=True,
        input_names=["tiles"],
        output_names=outputs,
        external_data=False,
        opset_version=OPSET,
        verbose=False,
    )
    assert program is not None  # with dynamo=True it never is
    model: onnx.ModelProto = program.model_proto
    _tidy(model)
    _free_shape(model.graph.input, ("n", "height", "width"))
    _free_shape(model.graph.output, ("n", "rows", "columns"))
    properties = {"name": artifact.name, "version": artifact.version, "inference_hash": artifact.inference_hash}
    onnx.helper.set_model_props(model, properties)
    onnx.checker.check_model(model, full_check=True)
    return model


def _free_shape(values: Iterable[onnx.ValueInfoProto], names: tuple[str, ...]) -> None:
    for value in values:
        for dimension, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
            dimension.dim_param = name


def _tidy(model: onnx.ModelProto) -> None:
    """Name convolutions after their layers; drop the traced shapes, and the exporter's notes with their paths."""
    for node in model.graph.node:
        if node.op_type == "Conv":
            layer = node.input[1].removesuffix(".weight")
            node.name = layer.replace("network.", "")
    model.graph.ClearField("value_info")
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


def check_occupied(truth: Sequence[Maps], artifact: Artifact, unproven: bool) -> None:
    """A network that answers with few classes agrees with anything: such a comparison proves nothing."""
    if artifact.decoding == "regression" or unproven:
        return
    wanted, found = min(MIN_CLASSES, *artifact.layout.classes), occupied_classes(truth)
    if found < wanted:
        raise ModelError(
            f"torch itself answers with {found} classes on the {len(truth)} tiles, which proves too little: export "
            f"a trained network on images of crowds (at least {wanted} classes), or insist with --unproven."
        )


def check_half_range(network: nn.Module, artifact: Artifact, probes: Sequence[Probe]) -> None:
    """A CPU computes an fp16 file in fp32 and would not notice that a GPU overflows."""
    peaks: dict[str, float] = {}

    def record(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            peaks[name] = max(peaks.get(name, 0.0), float(output.abs().max()))

        return hook

    layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)]
    hooks = [layer.register_forward_hook(record(name)) for name, layer in layers]
    torch_answers(network, artifact, probes[:4])
    for hook in hooks:
        hook.remove()
    name = max(peaks, key=lambda key: peaks[key])
    if peaks[name] > MAX_HALF:
        raise ModelError(f"fp16 was refused: {name} reaches {peaks[name]:.0f}, too near to fp16's end at 65504.")


def file_name(precision: Precision) -> str:
    return f"model.{precision}.onnx"


def _report(precision: Precision, file: ModelFile) -> str:
    parity = file.parity
    assert parity is not None
    return (
        f"{precision}: counts differ by {parity.count_difference:.3%} (worst tile {parity.worst_tile:.2%}), "
        f"{parity.class_agreement:.2%} of the classes agree, {parity.speed:.2f} times as fast as fp32"
    )


@contextmanager
def _workshop(out: Path) -> Iterator[Path]:
    """A folder beside `out`, gone at the end unless it was moved."""
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
