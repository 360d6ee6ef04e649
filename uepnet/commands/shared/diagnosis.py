"""What `uepnet doctor` finds out: packages, engines, devices, and whether the device counts as the CPU does."""

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from uepnet.model.runtime import Runtime
    from uepnet.model.tiling import Tile

# A distribution each, and what it is for.
PACKAGES = {
    "onnxruntime": "counting on a CPU",
    "onnxruntime-gpu": "counting on CUDA and TensorRT",
    "openvino": "counting faster on an x86-64 CPU, and on Intel's GPUs",
    "fastapi": "the service",
    "av": "video",
    "torch": "training",
    "onnx": "export",
    "ray": "many machines",
}
MAX_DIFFERENCE = 0.02  # of the count, between fp32 on the CPU and what would run: int8's own limit


def examine(model: Path | None, wanted: dict[str, Any], tile: "Tile") -> dict[str, Any]:
    """Everything that `doctor --json` prints; `wanted`: device, precision, engine and threads as asked for."""
    from uepnet.bench.machine import machine
    from uepnet.model.errors import ModelError
    from uepnet.model.runtime import Runtime

    found: dict[str, Any] = {
        "machine": machine(),
        "packages": {name: _version(name) for name in ("uepnet", *PACKAGES)},
        "providers": providers(),
        "model": None,
        "check": None,
        "problems": [],
    }
    if found["packages"]["onnxruntime"] and found["packages"]["onnxruntime-gpu"]:
        found["problems"].append("onnxruntime and onnxruntime-gpu are both installed and overwrite each other.")
    try:
        runtime = Runtime(model, **wanted)
        runtime.warm_up()
        found["model"] = describe(runtime)
        found["check"] = check = compare_devices(runtime, tile)
        if check["difference"] > MAX_DIFFERENCE:
            found["problems"].append(
                f"{runtime.device} in {runtime.precision} counts {check['difference']:.1%} differently from the CPU."
            )
    except ModelError as error:
        found["problems"].append(str(error))
    found["healthy"] = not found["problems"]
    return found


def providers() -> dict[str, str]:
    """Each engine's devices, and whether they load; compiled in is not loaded."""
    states: dict[str, str] = {}
    if _installed("onnxruntime"):
        from uepnet.model.runtime.onnxruntime_engine import provider_states

        states |= provider_states()
    if _installed("openvino"):
        from uepnet.model.runtime.openvino_engine import available_devices

        states |= {f"OpenVINO {device}": "loads" for device in available_devices()}
    return states


def describe(runtime: "Runtime") -> dict[str, Any]:
    """What would run, and why."""
    artifact = runtime.artifact
    memory = runtime.device_memory()
    return {
        "directory": str(runtime.model_dir),
        "name": artifact.name,
        "version": artifact.version,
        "encoder": artifact.layout.encoder,
        "files": {
            precision: None if file.parity is None else file.parity.model_dump()
            for precision, file in artifact.files.items()
        },
        "engines": artifact.model_dump(mode="json")["engines"],
        "device": runtime.device,
        "engine": runtime.engine,
        "engine_version": runtime.engine_version,
        "reason": runtime.choice.reason,
        "provider": runtime.provider,
        "precision": runtime.precision,
        "threads": runtime.threads,
        "fallback": runtime.fallback,
        "unproven": runtime.unproven,
        "device_memory_bytes": None if memory is None else {"used": memory[0], "total": memory[1]},
    }


def compare_devices(runtime: "Runtime", tile: "Tile", rounds: int = 3) -> dict[str, Any]:
    """The same tile on the CPU in fp32 (or the nearest there is) and as it would run: counts and seconds."""
    import numpy as np

    from uepnet.model.decode import count_map
    from uepnet.model.runtime import Runtime

    reference = "fp32" if "fp32" in runtime.artifact.files else "auto"
    engine = "onnxruntime" if _installed("onnxruntime") else "auto"
    plain = Runtime(runtime.model_dir, device="cpu", precision=reference, engine=engine)
    counts, seconds = [], []
    for candidate in (plain, runtime):
        candidate.run([tile])  # the first run allocates
        (maps,) = candidate.run([tile])
        counts.append(float(count_map(maps, candidate.artifact).sum(dtype=np.float64)))
        seconds.append(_fastest(lambda: candidate.run([tile]), rounds))  # noqa: B023 - called at once
    return {
        "tile": f"{tile.shape[1]}x{tile.shape[0]}",
        "cpu": {"engine": plain.engine, "precision": plain.precision, "count": counts[0], "seconds": seconds[0]},
        "chosen": {"engine": runtime.engine, "precision": runtime.precision, "count": counts[1], "seconds": seconds[1]},
        "difference": abs(counts[1] - counts[0]) / max(counts[0], 1.0),
        "times_as_fast": seconds[0] / seconds[1],
    }


def record_parity(model: Path, pictures: Path, write: bool, watch: "Callable[[str], None]") -> dict[str, Any]:
    """Compare every other engine with the fp32 file on pictures of crowds; with `write` into the artifact."""
    from uepnet.model.artifact import Artifact
    from uepnet.model.errors import InputError
    from uepnet.model.runtime import BUNDLED, Runtime
    from uepnet.training.data.layouts import images_in
    from uepnet.training.engines import measure_engines
    from uepnet.training.parity import LARGE, answers, cut_probes

    if write and model.resolve() == BUNDLED.resolve():
        raise InputError("The bundled model is not written to: copy it and name the copy with --model.")
    artifact = Artifact.load(model)
    probes = cut_probes(images_in(pictures), 16, LARGE, seed=0, scale=artifact.scale)
    plain = Runtime(model, device="cpu", precision="fp32", engine="onnxruntime")
    engines = measure_engines(model, probes, answers(plain.run_tiles, probes), watch)
    measured = artifact.model_copy(update={"engines": engines})
    if write:
        measured.save(model)
    recorded: dict[str, Any] = measured.model_dump(mode="json")["engines"]
    return recorded


def _fastest(work: "Callable[[], object]", rounds: int) -> float:
    import time

    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def _installed(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
