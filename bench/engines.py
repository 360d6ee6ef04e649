"""From JPEG to count in every engine and precision, in turns: seconds, CPU seconds, and the counts' differences."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from uepnet.model import scale
from uepnet.model.count import count_image
from uepnet.model.errors import ModelError
from uepnet.model.image import KEPT_BLOCKS, load_image
from uepnet.model.runtime import Runtime

BASE = "onnxruntime fp32"
BEFORE = "onnxruntime int8, resized as in 0.1"  # by Pillow alone, whose memory was not kept from image to image

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
                yield BEFORE, _resized_by_pillow(_counter(runtime))


def _counter(runtime: Runtime) -> Work:
    def work(image: bytes) -> float:
        return count_image(load_image(image), runtime.artifact, runtime.run_tiles).count

    return work


def _resized_by_pillow(work: Work) -> Work:
    def slower(image: bytes) -> float:
        now = scale.ENLARGED, scale.NEARLY
        scale.ENLARGED, scale.NEARLY = math.inf, 0.0
        Image.core.set_blocks_max(0)  # type: ignore[attr-defined]
        try:
            return work(image)
        finally:
            Image.core.set_blocks_max(KEPT_BLOCKS)  # type: ignore[attr-defined]
            scale.ENLARGED, scale.NEARLY = now

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


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A table of at most 80 columns; `--json` has every figure."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = "From JPEG to count. Times: by CPU seconds. Apart: counts, mean and worst."
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title, title_justify="left", title_style="")
    table.add_column("way", max_width=24)
    names = ("seconds", "CPU\nseconds", "times\nfp32", "times\n0.1", "apart from\nfp32", "apart from\nonnxruntime")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row["way"],
            *(f"{row[name]:.3f}" for name in ("seconds", "cpu_seconds")),
            *("-" if row[name] is None else f"{row[name]:.2f}" for name in ("times_fp32_cpu", "times_before_cpu")),
            _percent(row["count_difference"], row["worst"]),
            _percent(row["from_onnxruntime"], row["worst_from_onnxruntime"]),
        )
    Console(highlight=False).print(table)


def _percent(mean: float | None, worst: float | None) -> str:
    return "-" if mean is None or worst is None else f"{mean:.1%} {worst:.1%}"
