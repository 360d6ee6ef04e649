"""Which engine, which precision: a rule over recorded facts, the same at every start on the same machine.

The facts are the artifact's parities (how far each engine and precision is from torch, measured once by the export),
the processor's features and the installed packages. Nothing is timed at start.
"""

import platform
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, Self, get_args

from uepnet.model.artifact import Artifact, EngineName, Parity, Precision
from uepnet.model.device import computes_bfloat16, has_avx2, multiplies_bytes
from uepnet.model.errors import ModelError

# A file whose count differs from torch's by more than this is neither exported nor chosen.
LIMITS: dict[Precision, float] = {"fp32": 0.001, "fp16": 0.005, "bf16": 0.01, "int8": 0.02}
WORTHWHILE_SPEED = 1.15  # int8 must be this many times as fast as fp32 to be worth its error
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
INSTALL = {"onnxruntime": "pip install 'uepnet[cpu]', or 'uepnet[gpu]'", "openvino": "pip install 'uepnet[openvino]'"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What the rule looks at, apart from the artifact."""

    x86: bool
    avx2: bool
    int8: bool  # a dot product of bytes
    bfloat16: bool
    installed: frozenset[EngineName]

    @classmethod
    def here(cls) -> Self:
        return cls(
            x86=platform.machine().lower() in ("x86_64", "amd64"),
            avx2=has_avx2(),
            int8=multiplies_bytes(),
            bfloat16=computes_bfloat16(),
            installed=frozenset(name for name in ENGINES if find_spec(name) is not None),
        )


@dataclass(frozen=True, slots=True)
class EngineChoice:
    engine: EngineName
    precision: Precision
    reason: str  # a sentence for the log and for `uepnet doctor`


def choose_on_cpu(artifact: Artifact, engine: str, precision: str, machine: Machine) -> EngineChoice:
    """The engine and precision that run on the CPU. ModelError where what was asked for cannot run."""
    check_known(artifact, engine, precision)
    if precision == "bf16":
        return _bfloat16(engine, machine)
    if engine != "auto":
        chosen = _installed(engine, machine)
        return EngineChoice(chosen, choose_precision(artifact, precision, chosen, machine), "The engine was asked for.")
    if not machine.installed:
        raise ModelError(f"No inference engine is installed: {INSTALL['onnxruntime']}.")
    if "onnxruntime" not in machine.installed:
        only: EngineName = "openvino"
        return EngineChoice(only, choose_precision(artifact, precision, only, machine), "No other engine is installed.")
    plain = choose_precision(artifact, precision, "onnxruntime", machine)
    against = _reason_against_openvino(artifact, precision, plain, machine)
    if against is None:
        reason = "OpenVINO is installed, this is x86-64 with AVX2, and the recorded parity is within its limit."
        return EngineChoice("openvino", plain, reason)
    return EngineChoice("onnxruntime", plain, against)


def _reason_against_openvino(artifact: Artifact, asked: str, plain: Precision, machine: Machine) -> str | None:
    """Why `auto` stays with ONNX Runtime, which would run `plain`; None where OpenVINO runs the same precision."""
    if "openvino" not in machine.installed:
        return "OpenVINO is not installed."
    if not (machine.x86 and machine.avx2):
        return "OpenVINO is chosen on x86-64 processors with AVX2 alone; this is none."
    if choose_precision(artifact, asked, "openvino", machine) != plain or not within_limit(artifact, "openvino", plain):
        return f"The artifact records no parity of OpenVINO in {plain} that is within its limit."
    return None


def choose_precision(
    artifact: Artifact, asked: str, engine: EngineName, machine: Machine, kind: Literal["cpu", "gpu"] = "cpu"
) -> Precision:
    """The precision asked for; for `auto` the fastest whose measured difference lies within its limit."""
    check_known(artifact, engine, asked)
    if asked != "auto":
        return next(precision for precision in get_args(Precision) if precision == asked)
    # The arithmetic of fp16 is proven once, with the file; an engine's own record on a CPU does not contain it.
    if kind == "gpu" and all(within_limit(artifact, name, "fp16") for name in {engine, "onnxruntime"}):
        return "fp16"
    if kind == "cpu" and machine.int8 and _int8_is_worth_it(artifact, engine):
        return "int8"
    order: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    return next(precision for precision in order if precision in artifact.files)


def check_known(artifact: Artifact, engine: str, precision: str) -> None:
    """Refuse names that do not exist and precisions that this model has no file for."""
    if engine not in ("auto", *ENGINES):
        raise ModelError(f"Engine must be auto, {', '.join(ENGINES)}, not {engine!r}.")
    known = get_args(Precision)
    if precision not in ("auto", *known):
        raise ModelError(f"Precision must be auto, {', '.join(known)}, not {precision!r}.")
    if not artifact.files:
        raise ModelError(
            f"Model {artifact.name} {artifact.version} has no ONNX file yet: make one with `uepnet export`."
        )
    needed = "fp32" if precision == "bf16" else precision
    if needed != "auto" and needed not in artifact.files:
        raise ModelError(f"This model has no {needed} file; it has {', '.join(artifact.files)}.")


def within_limit(artifact: Artifact, engine: EngineName, precision: Precision) -> bool:
    """Whether the engine was measured to be close enough in this precision; unmeasured is not close enough."""
    parity = artifact.parity(engine, precision)
    return parity is not None and parity.count_difference <= LIMITS[precision]


def why_unproven(artifact: Artifact, engine: EngineName, precision: Precision) -> str | None:
    """A sentence on counts that nobody has found close enough to torch's, for what was asked for by name.

    None where the recorded difference is within its limit, and for the fp32 file in ONNX Runtime, which defines the
    model for whoever has it without a record.
    """
    parity = artifact.parity(engine, precision)
    if parity is None:
        if (engine, precision) == ("onnxruntime", "fp32"):
            return None
        return f"This model was never compared with torch in {precision} on {engine}; its counts are not proven."
    if parity.count_difference <= LIMITS[precision]:
        return None
    return (
        f"Counts in {precision} on {engine} differ from torch's by {parity.count_difference:.2%} on average, more than "
        f"the limit of {LIMITS[precision]:.1%}; --precision auto and --engine auto stay within it."
    )


def _int8_is_worth_it(artifact: Artifact, engine: EngineName) -> bool:
    parity = artifact.parity(engine, "int8")
    if parity is None or not within_limit(artifact, engine, "int8"):
        return False
    return parity.speed > WORTHWHILE_SPEED * _speed(artifact.parity(engine, "fp32"))


def _speed(parity: Parity | None) -> float:
    return 1.0 if parity is None else parity.speed


def _bfloat16(engine: str, machine: Machine) -> EngineChoice:
    """OpenVINO alone computes in bfloat16, and without the processor's help it would quietly compute in fp32."""
    if engine == "onnxruntime":
        raise ModelError("ONNX Runtime does not compute in bfloat16: use --engine openvino, or another precision.")
    if not machine.bfloat16:
        raise ModelError("This processor has no bfloat16 arithmetic (AVX512-BF16 or AMX): choose another precision.")
    return EngineChoice(_installed("openvino", machine), "bf16", "OpenVINO alone computes in bfloat16.")


def _installed(engine: str, machine: Machine) -> EngineName:
    found = next((name for name in ENGINES if name == engine and name in machine.installed), None)
    if found is None:
        raise ModelError(f"The engine {engine} is not installed: {INSTALL[engine]}.")
    return found
