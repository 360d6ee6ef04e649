"""The rule for engine and precision, over made-up machines and recorded parities."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.toy import toy_artifact, toy_model

from uepnet.model.artifact import Artifact, EngineName, ModelFile, Parity, Precision
from uepnet.model.errors import ModelError
from uepnet.model.runtime import LIMITS, Machine, Runtime, choose_on_cpu, choose_precision, why_unproven

BOTH: frozenset[EngineName] = frozenset({"onnxruntime", "openvino"})
ZEN4 = Machine(x86=True, avx2=True, int8=True, bfloat16=True, installed=BOTH)
PLAIN = replace(ZEN4, installed=frozenset({"onnxruntime"}))
ARM = Machine(x86=False, avx2=False, int8=True, bfloat16=False, installed=BOTH)


def measured(difference: float, speed: float) -> Parity:
    return Parity(tiles=9, class_agreement=0.99, count_difference=difference, worst_tile=difference, speed=speed)


def artifact_with(
    int8: Parity | None = None, openvino: dict[Precision, Parity] | None = None, **more: ModelFile
) -> Artifact:
    files: dict[Any, ModelFile] = {
        "fp32": ModelFile(file="a.onnx", sha256="0" * 64, parity=measured(0, 1)),
        "int8": ModelFile(file="b.onnx", sha256="0" * 64, parity=int8),
        **more,
    }
    return toy_artifact(files=files, engines={"openvino": openvino} if openvino else {})


GOOD = measured(0.01, 1.8)
PROVEN: dict[Precision, Parity] = {"fp32": measured(0, 1.2), "int8": measured(0.01, 2.5)}


@pytest.mark.parametrize(
    ("parity", "chosen"),
    [
        (measured(0.01, 1.8), "int8"),
        (measured(0.03, 1.8), "fp32"),  # off by more than its limit
        (measured(0.01, 1.1), "fp32"),  # hardly faster
        (None, "fp32"),  # never measured
    ],
)
def test_the_cpu_takes_int8_only_where_it_is_close_and_faster(parity: Parity | None, chosen: str) -> None:
    artifact = artifact_with(int8=parity)
    assert choose_on_cpu(artifact, "auto", "auto", PLAIN).precision == chosen
    assert choose_on_cpu(artifact, "auto", "int8", PLAIN).precision == "int8"
    assert choose_on_cpu(artifact, "auto", "auto", replace(PLAIN, int8=False)).precision == "fp32"
    assert choose_precision(artifact, "auto", "onnxruntime", PLAIN, kind="gpu") == "fp32"


@pytest.mark.parametrize(("difference", "chosen"), [(0.001, "fp16"), (0.006, "fp32")])
def test_a_gpu_takes_fp16_where_it_is_close(difference: float, chosen: str) -> None:
    artifact = artifact_with(fp16=ModelFile(file="c.onnx", sha256="0" * 64, parity=measured(difference, 0.5)))
    assert choose_precision(artifact, "auto", "onnxruntime", ZEN4, kind="gpu") == chosen
    assert choose_on_cpu(artifact, "auto", "auto", ZEN4).precision == "fp32"


def test_openvino_is_chosen_where_it_is_installed_proven_and_the_processor_fits() -> None:
    artifact = artifact_with(GOOD, PROVEN)
    chosen = choose_on_cpu(artifact, "auto", "auto", ZEN4)
    assert (chosen.engine, chosen.precision) == ("openvino", "int8")


@pytest.mark.parametrize(
    ("openvino", "machine", "reason"),
    [
        (PROVEN, PLAIN, "not installed"),
        (PROVEN, ARM, "x86-64"),
        (PROVEN, replace(ZEN4, avx2=False), "AVX2"),
        (None, ZEN4, "records no parity of OpenVINO in int8"),  # as in format 1: the counts stay what they were
        ({"fp32": measured(0, 1.2)}, ZEN4, "records no parity of OpenVINO in int8"),
        ({**PROVEN, "int8": measured(0.03, 2.5)}, ZEN4, "within its limit"),
    ],
)
def test_otherwise_onnxruntime_runs_and_the_reason_is_told(openvino: Any, machine: Machine, reason: str) -> None:
    chosen = choose_on_cpu(artifact_with(GOOD, openvino), "auto", "auto", machine)
    assert (chosen.engine, chosen.precision) == ("onnxruntime", "int8")
    assert reason in chosen.reason


def test_int8_in_openvino_is_measured_against_fp32_in_openvino() -> None:
    """int8 at 1.3 times ONNX Runtime's fp32 is no gain where OpenVINO's fp32 already has 1.2."""
    artifact = artifact_with(measured(0.01, 1.05), {"fp32": measured(0, 1.2), "int8": measured(0.01, 1.3)})
    chosen = choose_on_cpu(artifact, "auto", "auto", ZEN4)
    assert (chosen.engine, chosen.precision) == ("openvino", "fp32")


def test_an_engine_that_was_asked_for_runs_without_proof_but_takes_int8_only_with_it() -> None:
    assert choose_on_cpu(artifact_with(GOOD), "openvino", "auto", ZEN4).precision == "fp32"
    assert choose_on_cpu(artifact_with(GOOD, PROVEN), "openvino", "auto", ZEN4).precision == "int8"
    assert choose_on_cpu(artifact_with(GOOD, PROVEN), "onnxruntime", "auto", ZEN4).engine == "onnxruntime"


def test_the_only_engine_that_is_installed_runs() -> None:
    machine = replace(ZEN4, installed=frozenset({"openvino"}))
    assert choose_on_cpu(artifact_with(GOOD), "auto", "auto", machine).engine == "openvino"


def test_bfloat16_is_never_chosen_but_runs_where_it_is_asked_for() -> None:
    artifact = artifact_with(None, {"fp32": measured(0, 1.2), "bf16": measured(0, 3.0)})
    assert choose_on_cpu(artifact, "auto", "auto", ZEN4).precision == "fp32"
    chosen = choose_on_cpu(artifact, "auto", "bf16", ZEN4)
    assert (chosen.engine, chosen.precision) == ("openvino", "bf16")
    assert LIMITS["bf16"] <= 0.01


@pytest.mark.parametrize(
    ("engine", "precision", "machine", "message"),
    [
        ("auto", "bf16", replace(ZEN4, bfloat16=False), "no bfloat16 arithmetic"),
        ("onnxruntime", "bf16", ZEN4, "does not compute in bfloat16"),
        ("auto", "bf16", PLAIN, r"openvino is not installed: pip install 'uepnet\[openvino\]'"),
        ("openvino", "auto", PLAIN, "openvino is not installed"),
        ("tvm", "auto", ZEN4, "must be auto, onnxruntime, openvino, not 'tvm'"),
        ("auto", "auto", replace(ZEN4, installed=frozenset()), "No inference engine is installed"),
        ("auto", "fp64", ZEN4, "must be auto, fp32, fp16, bf16, int8, not 'fp64'"),
        ("auto", "fp16", ZEN4, "no fp16 file; it has fp32, int8"),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(
    engine: str, precision: str, machine: Machine, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        choose_on_cpu(artifact_with(GOOD, PROVEN), engine, precision, machine)


def test_a_model_with_a_single_file_uses_it(tmp_path: Path) -> None:
    assert Runtime(toy_model(tmp_path, precisions=("fp16",))).precision == "fp16"


def test_bf16_without_an_fp32_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no fp32 file; it has int8"):
        Runtime(toy_model(tmp_path, precisions=("int8",)), precision="bf16")


def test_counts_that_were_never_measured_or_are_past_their_limit_are_warned_of() -> None:
    artifact = artifact_with(measured(0.03, 1.8), {"fp32": measured(0, 1.2), "int8": measured(0.025, 2.5)})
    assert why_unproven(artifact, "onnxruntime", "fp32") is None
    assert why_unproven(artifact, "openvino", "fp32") is None
    assert why_unproven(artifact_with(), "onnxruntime", "fp32") is None
    never = why_unproven(artifact, "openvino", "bf16")
    assert never is not None and "never compared with torch in bf16 on openvino" in never
    past = why_unproven(artifact, "openvino", "int8")
    assert past is not None and "differ from torch's by 2.50% on average, more than the limit of 2.0%" in past
    assert why_unproven(artifact_with(GOOD, PROVEN), "openvino", "int8") is None


def test_an_unproven_choice_that_was_asked_for_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = toy_model(tmp_path, precisions=("fp32", "int8"))
    runtime = Runtime(model, device="cpu", precision="int8", engine="onnxruntime")
    assert runtime.unproven is not None and runtime.unproven in caplog.text
    caplog.clear()
    assert Runtime(model, device="cpu", engine="onnxruntime").unproven is None and caplog.text == ""


def test_an_intel_gpu_takes_fp16_only_with_a_proof_of_its_arithmetic() -> None:
    """OpenVINO's record is of a CPU, which computes an fp16 file in fp32."""
    close, far = (ModelFile(file="c.onnx", sha256="0" * 64, parity=measured(value, 1)) for value in (0.001, 0.02))
    on_cpu: dict[Precision, Parity] = {"fp16": measured(0, 1)}
    for file, chosen in ((close, "fp16"), (far, "fp32")):
        artifact = artifact_with(None, on_cpu, fp16=file)
        assert choose_precision(artifact, "auto", "openvino", ZEN4, kind="gpu") == chosen
