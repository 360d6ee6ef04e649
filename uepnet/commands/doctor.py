"""`uepnet doctor`: what is installed, what would run, and whether the device counts as the CPU does."""

import argparse
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from uepnet.model.runtime import Runtime
    from uepnet.model.tiling import Tile

EPILOG = """examples:
  uepnet doctor
  uepnet doctor --model models/mine --device cuda
  uepnet doctor --image crowd.jpg --json

Exits with 0 if the model runs, and as asked; with 1 if it does not, or if the device counts differently."""

# A distribution each, and what it is for.
PACKAGES = {
    "onnxruntime": "counting on a CPU",
    "onnxruntime-gpu": "counting on CUDA",
    "fastapi": "the service",
    "av": "video",
    "torch": "training",
    "onnx": "export",
    "ray": "many machines",
}
SIDE = 512  # of the tile that is counted to compare devices
MAX_DIFFERENCE = 0.02  # of the count, between fp32 on the CPU and what would run: int8's own limit


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show what is installed and what would run, and check it."
    parser.epilog = EPILOG
    parser.add_argument("--model", type=Path, metavar="DIR", help="a model directory; without it the bundled model")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--precision", default="auto", help="auto, fp32, fp16 or int8 (default: auto)")
    parser.add_argument("--image", type=Path, metavar="FILE", help="check on this picture instead of a pattern")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import json
    import logging

    log = logging.getLogger("uepnet")
    level = log.level
    log.setLevel(logging.ERROR)  # what it would warn of stands in the report
    try:
        found = examine(args.model, args.device, args.precision, _tile(args.image))
    finally:
        log.setLevel(level)
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        _show(found)
    return 0 if found["healthy"] else 1


def examine(model: Path | None, device: str, precision: str, tile: "Tile") -> dict[str, Any]:
    from uepnet.bench.machine import machine
    from uepnet.model.errors import ModelError

    found: dict[str, Any] = {
        "machine": machine(),
        "packages": {name: _version(name) for name in ("uepnet", *PACKAGES)},
        "providers": {},
        "model": None,
        "check": None,
        "problems": [],
    }
    both = [name for name in ("onnxruntime", "onnxruntime-gpu") if found["packages"][name]]
    if len(both) == 2:
        found["problems"].append("onnxruntime and onnxruntime-gpu are both installed and overwrite each other.")
    try:
        found["providers"] = providers()
        runtime = _open(model, device, precision)
        found["model"] = describe(runtime)
        found["check"] = check = compare_devices(runtime, tile)
        if check["difference"] > MAX_DIFFERENCE:
            found["problems"].append(
                f"{runtime.device} in {runtime.precision} counts {check['difference']:.1%} differently from the CPU."
            )
    except ModuleNotFoundError:
        found["problems"].append("ONNX Runtime is not installed: pip install 'uepnet[cpu]', or 'uepnet[gpu]'.")
    except ModelError as error:
        found["problems"].append(str(error))
    found["healthy"] = not found["problems"]
    return found


def providers() -> dict[str, str]:
    """Each provider that this ONNX Runtime could have, and whether it loads; compiled in is not loaded."""
    import onnxruntime

    from uepnet.model.device import cuda_driver, cuda_memory
    from uepnet.model.runtime import CPU, CUDA, cuda_trouble

    compiled = onnxruntime.get_available_providers()
    states = {CPU: "loads"}
    if CUDA not in compiled:
        states[CUDA] = "not in this ONNX Runtime (pip install 'uepnet[gpu]')"
    elif cuda_driver() is None:
        states[CUDA] = "no NVIDIA driver: libcuda.so.1 is not there"
    elif cuda_memory(0) is None:
        states[CUDA] = "the NVIDIA driver shows no device"
    else:
        onnxruntime.preload_dlls()
        trouble = cuda_trouble()
        states[CUDA] = "loads" if trouble.startswith("its libraries") else trouble
    return states | {name: "compiled in, not used" for name in compiled if name not in states}


def describe(runtime: "Runtime") -> dict[str, Any]:
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
        "device": runtime.device,
        "provider": runtime.provider,
        "precision": runtime.precision,
        "threads": runtime.threads,
        "fallback": runtime.fallback,
        "device_memory_bytes": None if memory is None else {"used": memory[0], "total": memory[1]},
    }


def compare_devices(runtime: "Runtime", tile: "Tile", rounds: int = 3) -> dict[str, Any]:
    """The same tile on the CPU in fp32 (or the nearest there is) and as it would run: counts and seconds."""
    import numpy as np

    from uepnet.model.decode import count_map
    from uepnet.model.runtime import Runtime

    reference = "fp32" if "fp32" in runtime.artifact.files else "auto"
    plain = Runtime(runtime.model_dir, device="cpu", precision=reference)
    counts, seconds = [], []
    for candidate in (plain, runtime):
        candidate.run([tile])  # the first run allocates
        (maps,) = candidate.run([tile])
        counts.append(float(count_map(maps, candidate.artifact).sum(dtype=np.float64)))
        seconds.append(_fastest(lambda: candidate.run([tile]), rounds))  # noqa: B023 - called at once
    return {
        "tile": f"{tile.shape[1]}x{tile.shape[0]}",
        "cpu": {"precision": plain.precision, "count": counts[0], "seconds": seconds[0]},
        "chosen": {"precision": runtime.precision, "count": counts[1], "seconds": seconds[1]},
        "difference": abs(counts[1] - counts[0]) / max(counts[0], 1.0),
        "times_as_fast": seconds[0] / seconds[1],
    }


def _tile(image: Path | None) -> "Tile":
    """A picture's middle, or a pattern of coloured squares; sides multiples of 32."""
    import numpy as np

    from uepnet.model.errors import InputError
    from uepnet.model.image import load_image

    if image is None:
        coarse = np.random.default_rng(0).integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
        return coarse.repeat(8, axis=0).repeat(8, axis=1)
    pixels = load_image(image)
    height, width = (min(SIDE, side) // 32 * 32 for side in pixels.shape[:2])
    if not height or not width:
        raise InputError(f"{image} is smaller than 32x32 pixels: too small to check on.")
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def _fastest(work: Any, rounds: int) -> float:
    import time

    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def _open(model: Path | None, device: str, precision: str) -> "Runtime":
    from uepnet.model.runtime import Runtime

    runtime = Runtime(model, device=device, precision=precision)
    runtime.warm_up()
    return runtime


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console

    table = _table()
    machine = found["machine"]
    table.add_row("machine", f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB")
    table.add_row("", f"Python {machine['python']} on {machine['system']}")
    for name, version in found["packages"].items():
        note = f" ({PACKAGES[name]})" if name in PACKAGES else ""
        table.add_row("installed" if name == "uepnet" else "", f"{name} {version or 'not there'}{note}")
    for index, (name, state) in enumerate(found["providers"].items()):
        table.add_row("" if index else "providers", f"{name}: {state}")
    if found["model"] is not None:
        _show_model(table, found["model"], found["check"])
    for index, problem in enumerate(found["problems"]):
        table.add_row("" if index else "problems", problem)
    table.add_row("verdict", "healthy" if found["healthy"] else "not as asked")
    Console(highlight=False, markup=False).print(table)


def _show_model(table: "Table", model: dict[str, Any], check: dict[str, Any]) -> None:
    table.add_row("model", f"{model['name']} {model['version']} ({model['encoder']}), {model['directory']}")
    for precision, parity in model["files"].items():
        measured = (
            "never compared with torch"
            if parity is None
            else f"counts within {parity['count_difference']:.2%} of torch, {parity['speed']:.2f} times fp32's speed"
        )
        table.add_row("", f"{precision}: {measured}")
    where = f"{model['precision']} on {model['device']} ({model['provider']}, {model['threads']} threads)"
    table.add_row("would run", where)
    if model["fallback"]:
        table.add_row("", model["fallback"])
    if model["device_memory_bytes"]:
        memory = model["device_memory_bytes"]
        table.add_row("", f"{memory['used'] / 2**30:.1f} of {memory['total'] / 2**30:.1f} GiB used")
    table.add_row(
        "check",
        f"a {check['tile']} tile: {1000 * check['chosen']['seconds']:.0f} ms, {check['times_as_fast']:.2f} times as "
        f"fast as {check['cpu']['precision']} on the CPU, counts {check['chosen']['count']:.2f}, there "
        f"{check['cpu']['count']:.2f}",
    )


def _table() -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table
