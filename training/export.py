"""A training run -> a model directory: one ONNX file per precision, each compared with torch or refused."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
from torch import Tensor, nn

from uepnet.model.artifact import Artifact, Decoding, ModelFile, Precision
from uepnet.model.errors import DataError, InputError, ModelError
from uepnet.model.network import UEPNet
from uepnet.model.runtime import LIMITS
from uepnet.training.engines import Engines, measure_engines, parity_of, report
from uepnet.training.half_precision import half_difference
from uepnet.training.onnx_graph import Half, folded, to_onnx
from uepnet.training.parity import Difference, Probe, occupied_classes, worse
from uepnet.training.prepare import load_network
from uepnet.training.quantise import quantise
from uepnet.training.workbench import Reference, Workbench, file_name, model_file, serialised

MIN_CLASSES = 10
MAX_FAMILIARITY_DIFFERENCE = 0.03  # mean over tiles of the difference of a tile's mean, which lies between 0 and 1
MAX_HALF = 20_000.0  # the largest fp16 value is 65504, and activations on other images may be larger than on the probes

Watch = Callable[[str], None]


@dataclass(frozen=True)
class ExportedModel:
    artifact: Artifact
    refused: dict[Precision, str]  # why, one sentence each


def export(
    run: Path,
    out: Path,
    precisions: Sequence[Precision],
    *,
    probes: Sequence[Probe],
    calibration: Sequence[Probe] = (),
    unproven: bool = False,
    decoding: Decoding | None = None,
    watch: Watch = lambda _: None,
) -> ExportedModel:
    """Write the model directory `out`, with a file for every precision that stays within its limit.

    Graphs are compared with torch on `probes`; `calibration` are the tiles that the ranges of int8 are fitted to.
    `unproven` exports although torch answers with too few classes on the probes for a meaningful comparison. `decoding`
    replaces that of the run; the range and the choice of scales, which belong to it, are then left out. Nothing is
    written if no precision passes.
    """
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty: choose another folder for the model.")
    artifact = Artifact.load(run)
    if decoding not in (None, artifact.decoding):
        artifact = _decoded_by(artifact, decoding)
    network = load_network(run, artifact)
    reference = Reference.of(network, artifact, probes)
    check_occupied(reference, artifact, unproven)
    files: dict[Precision, ModelFile] = {}
    contents: dict[str, bytes] = {}
    refused: dict[Precision, str] = {}
    with tempfile.TemporaryDirectory(prefix="uepnet-export-") as scratch:
        bench = Workbench(Path(scratch), artifact)
        watch("exporting fp32")
        plain = folded(network)
        fp32 = to_onnx(plain, artifact)
        for precision in precisions:
            try:
                model, arithmetic = fp32, None
                if precision == "fp16":
                    watch("exporting fp16")
                    check_half_range(plain, artifact, probes)
                    model = to_onnx(Half(plain), artifact)
                    arithmetic = half_difference(plain, artifact, probes, reference.maps)
                elif precision == "int8":
                    fitted = Reference.of(network, artifact, calibration)
                    model = _quantised(fp32, bench, fitted=fitted, reference=reference, watch=watch)
                files[precision] = prove(
                    model, precision, bench=bench, reference=reference, fp32=fp32, arithmetic=arithmetic
                )
            except ModelError as error:
                refused[precision] = str(error)
                continue
            contents[file_name(precision)] = serialised(model)
            watch(report(precision, files[precision].parity, precision))
    if not files:
        raise ModelError(" ".join(refused.values()))
    exported = artifact.model_copy(update={"files": files, "engines": {}})
    exported = exported.model_copy(update={"engines": _engines(exported, contents, reference, watch)})
    _write(out, exported, contents)
    return ExportedModel(exported, refused)


def _decoded_by(artifact: Artifact, decoding: Decoding | None) -> Artifact:
    if not artifact.heads or decoding == "regression":
        raise InputError(f"A run that was trained for {artifact.decoding} cannot be decoded by {decoding}.")
    # The range and the choice of scales belong to the decoding that they were fitted with.
    return artifact.model_copy(update={"decoding": decoding, "calibration": None, "scales": None})


def _quantised(
    fp32: onnx.ModelProto, bench: Workbench, *, fitted: Reference, reference: Reference, watch: Watch
) -> onnx.ModelProto:
    return quantise(
        fp32,
        fitted.probes,
        measure=lambda model: bench.difference(model, "int8", fitted),
        check=lambda model: bench.difference(model, "int8", reference),
        limit=LIMITS["int8"],
        watch=watch,
    )


def prove(
    model: onnx.ModelProto,
    precision: Precision,
    *,
    bench: Workbench,
    reference: Reference,
    fp32: onnx.ModelProto,
    arithmetic: Difference | None = None,
) -> ModelFile:
    """The file's entry with the measured differences; beyond the limit an error that says where.

    `arithmetic`: what was measured of the precision's arithmetic where this CPU runs the file in another one.
    """
    difference = worse(bench.difference(model, precision, reference), arithmetic)
    if difference.count_difference > LIMITS[precision]:
        raise ModelError(
            f"{precision} was refused: its counts differ from torch's by "
            f"{difference.count_difference:.2%} on average, the limit is {LIMITS[precision]:.1%}; worst: "
            f"{difference.worst}; {difference.class_agreement:.1%} of the classes agree."
        )
    if difference.familiarity_difference > MAX_FAMILIARITY_DIFFERENCE:
        raise ModelError(
            f"{precision} was refused: the familiarity of tiles differs from torch's by "
            f"{difference.familiarity_difference:.3f} on average, the limit is {MAX_FAMILIARITY_DIFFERENCE}."
        )
    speed = 1.0 if precision == "fp32" else bench.speed(model, precision, fp32, reference.probes)
    parity = parity_of(difference, speed)
    return model_file(precision, serialised(model)).model_copy(update={"parity": parity})


def _engines(artifact: Artifact, contents: Mapping[str, bytes], reference: Reference, watch: Watch) -> Engines:
    with tempfile.TemporaryDirectory(prefix="uepnet-engines-") as scratch:
        folder = Path(scratch)
        _fill(folder, artifact, contents)
        return measure_engines(folder, reference.probes, reference.maps, watch)


def check_occupied(reference: Reference, artifact: Artifact, unproven: bool) -> None:
    """A network that answers with few classes agrees with any other: such a comparison means nothing."""
    if artifact.decoding == "regression" or unproven:
        return
    wanted, found = min(MIN_CLASSES, *artifact.layout.classes), occupied_classes(reference.maps)
    if found < wanted:
        raise ModelError(
            f"The network's answers on the {len(reference.maps)} tiles have too few classes for a comparison ({found}; "
            f"at least {wanted} are needed): train it longer, give images of crowds with --images, or pass --unproven."
        )


def check_half_range(network: UEPNet, artifact: Artifact, probes: Sequence[Probe]) -> None:
    """Refuse values near the end of fp16's range. `network` as it is exported: folding batch norms changes them."""
    peaks: dict[str, float] = {}

    def record(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            peaks[name] = max(peaks.get(name, 0.0), float(output.abs().max()))

        return hook

    layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)]
    hooks = [layer.register_forward_hook(record(name)) for name, layer in layers]
    Reference.of(network, artifact, probes[:4])
    for hook in hooks:
        hook.remove()
    name = max(peaks, key=lambda key: peaks[key])
    if peaks[name] > MAX_HALF:
        raise ModelError(f"fp16 was refused: {name} reaches {peaks[name]:.0f}, too close to the fp16 limit of 65504.")


def _write(out: Path, artifact: Artifact, contents: Mapping[str, bytes]) -> None:
    """The whole directory, or nothing."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with _beside(out) as folder:
        _fill(folder, artifact, contents)
        if out.exists():
            out.rmdir()
        shutil.move(folder, out)


def _fill(folder: Path, artifact: Artifact, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    artifact.save(folder)


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A folder next to `out`; it is removed at the end unless it was moved."""
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
