"""How far each inference engine is from the truth, in every precision: what the rule for `--engine auto` goes by."""

import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from uepnet.model.artifact import Artifact, EngineName, Parity, Precision
from uepnet.model.decode import Maps
from uepnet.model.device import computes_bfloat16
from uepnet.model.runtime import LIMITS, Runtime
from uepnet.training.parity import Difference, Probe, answers, compare

OTHERS: tuple[EngineName, ...] = ("openvino",)  # ONNX Runtime's parity stands with each file

Engines = dict[EngineName, dict[Precision, Parity]]


def measure_engines(
    model_dir: Path, probes: Sequence[Probe], truth: Sequence[Maps], watch: Callable[[str], None] = lambda _: None
) -> Engines:
    """The parities of the installed engines other than ONNX Runtime, for each precision that this processor computes.

    A precision past its limit is recorded too: that is why it is not chosen. `truth` is torch's answers, or the fp32
    file's.
    """
    artifact = Artifact.load(model_dir)
    base: Precision = "fp32" if "fp32" in artifact.files else next(iter(artifact.files))
    reference = Runtime(model_dir, device="cpu", precision=base, engine="onnxruntime", warn=False)
    found: Engines = {}
    for engine in OTHERS:
        if find_spec(engine) is None:
            watch(f"{engine} is not installed: its parity is not recorded, and `--engine auto` will not choose it")
            continue
        found[engine] = {}
        for precision in precisions_on_cpu(artifact):
            runtime = Runtime(model_dir, device="cpu", precision=precision, engine=engine, warn=False)
            difference = compare(probes, truth, answers(runtime.run_tiles, probes), artifact)
            speed = times_as_fast(reference, runtime, probes)
            found[engine][precision] = parity_of(difference, speed)
            watch(report(f"{engine} {precision}", found[engine][precision], precision))
    return found


def precisions_on_cpu(artifact: Artifact) -> list[Precision]:
    """Those of the files, and bfloat16 where the processor has it."""
    precisions = list(artifact.files)
    return [*precisions, "bf16"] if "fp32" in precisions and computes_bfloat16() else precisions


def times_as_fast(base: Runtime, other: Runtime, probes: Sequence[Probe], rounds: int = 5) -> float:
    """On the largest probe, each one's best of some rounds; taken in turns, so that a busy moment hits both."""
    tile = max((probe.pixels for probe in probes), key=lambda pixels: pixels.size)
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, runtime in enumerate((base, other)):
            started = time.perf_counter()
            runtime.run([tile])
            best[index] = min(best[index], time.perf_counter() - started)
    return best[0] / best[1]


def parity_of(difference: Difference, speed: float) -> Parity:
    return Parity(
        tiles=difference.tiles,
        class_agreement=difference.class_agreement,
        count_difference=difference.count_difference,
        worst_tile=difference.worst_tile,
        speed=speed,
    )


def report(name: str, parity: Parity | None, precision: Precision) -> str:
    """One line of what was measured."""
    if parity is None:
        return f"{name}: not measured"
    past = f"; past its limit of {LIMITS[precision]:.1%}" if parity.count_difference > LIMITS[precision] else ""
    return (
        f"{name}: counts differ by {parity.count_difference:.3%} (worst tile {parity.worst_tile:.2%}), "
        f"{parity.class_agreement:.2%} of the classes agree, {parity.speed:.2f} times as fast as fp32{past}"
    )
