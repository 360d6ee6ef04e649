"""From JPEG to count in every engine and precision, in turns: seconds, CPU seconds, and the counts' differences."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from uepnet.model.count import count_image
from uepnet.model.errors import ModelError
from uepnet.model.image import KEPT_BLOCKS, load_image
from uepnet.model.runtime import Runtime

BASE = "onnxruntime fp32"
BEFORE = "onnxruntime int8, memory not kept"  # how images were decoded and resized in 0.1

Work = Callable[[bytes], float]


def counts(model: Path, threads: int, images: Sequence[bytes], rounds: int) -> list[dict[str, Any]]:
    """A row for each engine and precision that runs on this CPU."""
    ways = dict(_ways(model, threads))
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for work in ways.values():
        work(images[0])  # allocates
    for turn in range(rounds):
        image = images[turn % len(images)]
        for name, work in ways.items():
            started, spent = time.perf_counter(), time.process_time()
            found[name].append(work(image))
            wall[name].append(time.perf_counter() - started)
            cpu[name].append(time.process_time() - spent)
    base = BASE if BASE in ways else next(iter(ways))
    return [_row(name, wall, cpu, found, base) for name in ways]


def _ways(model: Path, threads: int) -> Iterator[tuple[str, Work]]:
    for engine in ("onnxruntime", "openvino"):
        for precision in ("fp32", "int8", "bf16"):
            try:
                runtime = Runtime(model, device="cpu", precision=precision, threads=threads, engine=engine)
            except ModelError:
                continue  # no such file, not installed, or not on this processor
            yield f"{engine} {precision}", _counter(runtime)
            if (engine, precision) == ("onnxruntime", "int8"):
                yield BEFORE, _without_kept_memory(_counter(runtime))


def _counter(runtime: Runtime) -> Work:
    def work(image: bytes) -> float:
        return count_image(load_image(image), runtime.artifact, runtime.run_tiles).count

    return work


def _without_kept_memory(work: Work) -> Work:
    def slower(image: bytes) -> float:
        Image.core.set_blocks_max(0)  # type: ignore[attr-defined]
        try:
            return work(image)
        finally:
            Image.core.set_blocks_max(KEPT_BLOCKS)  # type: ignore[attr-defined]

    return slower


def _row(
    name: str,
    wall: dict[str, list[float]],
    cpu: dict[str, list[float]],
    found: dict[str, list[float]],
    base: str,
) -> dict[str, Any]:
    apart = _apart(found[name], found[base])
    engine, _, precision = name.partition(" ")
    same = f"onnxruntime {precision}"
    engines_apart = _apart(found[name], found[same]) if engine == "openvino" and same in found else None

    def times(other: str, measured: dict[str, list[float]]) -> float | None:
        if other not in measured:
            return None
        return statistics.median(b / max(a, 1e-9) for a, b in zip(measured[name], measured[other], strict=True))

    return {
        "question": "count",
        "way": name,
        "seconds": statistics.median(wall[name]),
        "cpu_seconds": statistics.median(cpu[name]),
        "times_fp32": times(base, wall),
        "times_before": times(BEFORE, wall),
        "times_fp32_cpu": times(base, cpu),
        "times_before_cpu": times(BEFORE, cpu),
        "count_difference": statistics.mean(apart),
        "worst": max(apart),
        "from_onnxruntime": None if engines_apart is None else statistics.mean(engines_apart),  # in the same precision
        "worst_from_onnxruntime": None if engines_apart is None else max(engines_apart),
    }


def _apart(counts: Sequence[float], truth: Sequence[float]) -> list[float]:
    return [abs(a - b) / max(b, 1.0) for a, b in zip(counts, truth, strict=True)]
