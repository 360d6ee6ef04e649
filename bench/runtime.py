"""`uepnet bench runtime`: engines and precisions compared, and the cost of image size and halo.

Five measurements. Count: from JPEG to count in every engine and precision (`engines.py`). Backends: seconds for one
tile in torch eager, ONNX fp32 and int8, and on CUDA if present; as ratios, and as a share of this machine's peak of
multiply-adds. Both in alternating rounds, so that other load affects all. Size: how time and memory grow with the
image. Enlarged: what more pixels of the same picture cost. Halo: the cost of the overlap of tiles, and how much of the
error at their seams it removes.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uepnet.model.artifact import Artifact
    from uepnet.model.count import Tile

QUESTIONS = ("count", "backends", "size", "enlarged", "halo")
EXAMPLES = """examples:
  uepnet bench runtime                                     the bundled model
  uepnet bench runtime --images photos/*.jpg --only halo   the error at seams, on real photographs
  uepnet bench runtime --images photos/*.jpg --only count --rounds 48   engines, on photographs of many sizes
  uepnet bench runtime --encoder vgg16 --only backends     the paper's network with random weights: speed only
  uepnet bench runtime --json > runtime.json

Without --images the images are generated; the error at seams then says nothing about crowds."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure the model on this machine: backends, image sizes, halos."
    parser.epilog = EXAMPLES
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--model", type=Path, metavar="DIR", help="model directory (default: the bundled model)")
    what.add_argument(
        "--encoder", choices=["efficientnet-lite0", "vgg16"], help="an untrained network with this encoder"
    )
    parser.add_argument(
        "--images", type=Path, nargs="+", metavar="FILE", help="photographs (default: generated images)"
    )
    parser.add_argument(
        "--only", choices=QUESTIONS, nargs="+", default=QUESTIONS, help="measurements to make (default: all)"
    )
    parser.add_argument(
        "--width", type=int, default=1024, metavar="PIXELS", help="width of the tile for backends (default: 1024)"
    )
    parser.add_argument(
        "--height", type=int, default=768, metavar="PIXELS", help="height of the tile for backends (default: 768)"
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of count and backends (default: 5)")
    parser.add_argument(
        "--budget", type=float, default=30.0, metavar="SECONDS", help="longest time for one image (default: 30)"
    )
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="CPU threads; 0 for one per core (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: {machine, rows}")


def run(args: argparse.Namespace) -> int:
    from uepnet.bench.engines import counts
    from uepnet.bench.engines import show as show_counts
    from uepnet.bench.machine import machine
    from uepnet.bench.pictures import pictures
    from uepnet.bench.tiles import enlarged, halos, sizes
    from uepnet.model.runtime import BUNDLED, Runtime

    shown = pictures(args.images)
    rows: list[dict[str, Any]] = []
    with _untrained(args.encoder) if args.encoder else _given(args.model or BUNDLED) as model:
        runtime = Runtime(model, threads=args.threads)
        if "size" in args.only:  # first, before torch or whole images take memory
            rows += sizes(runtime, shown, args.budget)
        if "enlarged" in args.only:
            rows += enlarged(runtime, shown)
        if "halo" in args.only:
            rows += halos(runtime, shown, args.images, args.budget)
        if "count" in args.only:
            rows += counts(model, runtime.threads, _jpegs(args.images, args.width, args.height), args.rounds)
        if "backends" in args.only:
            rows += backends(model, runtime.threads, shown(args.width, args.height), args.rounds)
    if args.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=2))
    else:
        for question in args.only:
            show = show_counts if question == "count" else _show
            show([row for row in rows if row["question"] == question])
    return 0


def backends(model: Path, threads: int, picture: "Tile", rounds: int) -> list[dict[str, Any]]:
    """Every backend on one tile, in alternating rounds."""
    import numpy as np

    from uepnet.model.artifact import Artifact

    artifact = Artifact.load(model)
    height, width = (side // artifact.multiple * artifact.multiple for side in picture.shape[:2])
    tile = np.ascontiguousarray(picture[:height, :width])
    ways = dict(_ways(model, artifact, threads, tile))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for work in ways.values():
        work()  # allocates memory and chooses algorithms
    for _ in range(rounds):
        for name, work in ways.items():
            started = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - started)
    work_per_pixel, peak = multiply_adds(artifact), peak_multiply_adds(threads)
    rows = []
    for name, taken in seconds.items():
        rate = None if work_per_pixel is None else work_per_pixel * height * width / statistics.median(taken)
        rows.append(
            {
                "question": "backends",
                "backend": name,
                "tile": f"{width}x{height}",
                "seconds": statistics.median(taken),
                "times_torch": _ratio(seconds.get("torch eager"), taken),
                "times_onnx_fp32": _ratio(seconds.get("onnx fp32"), taken),
                "multiply_adds_per_pixel": work_per_pixel,
                "share_of_float_peak": None if rate is None else rate / peak,
            }
        )
    return rows


def _ways(model: Path, artifact: "Artifact", threads: int, tile: "Tile") -> Iterator[tuple[str, Callable[[], object]]]:
    from uepnet.model.errors import DeviceError
    from uepnet.model.runtime import Runtime

    eager = _torch_eager(artifact, threads, tile)
    if eager is not None:
        yield "torch eager", eager
    for precision in artifact.files:
        if precision != "fp16":  # a CPU has no fp16 arithmetic: it would only convert
            runtime = Runtime(model, device="cpu", precision=precision, threads=threads)
            yield f"onnx {precision}", lambda runtime=runtime: runtime.run([tile])  # type: ignore[misc]
    for precision in artifact.files:
        try:
            runtime = Runtime(model, device="cuda", precision=precision)
        except DeviceError:
            return
        yield f"cuda {precision}", lambda runtime=runtime: runtime.run([tile])  # type: ignore[misc]


def _torch_eager(artifact: "Artifact", threads: int, tile: "Tile") -> Callable[[], object] | None:
    """The same graph in torch with random weights, which are as fast as trained ones."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    from uepnet.model.network import build
    from uepnet.training.evaluate import torch_runner

    torch.set_num_threads(threads)
    runner = torch_runner(build(artifact.layout).eval(), artifact, torch.device("cpu"))
    return lambda: list(runner(iter([tile])))


def multiply_adds(artifact: "Artifact") -> float | None:
    """Multiply-adds of all convolutions per pixel of the tile; None without torch."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    from uepnet.model.network import build

    total = 0

    def add(layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal total
        assert isinstance(layer, torch.nn.Conv2d)
        total += output.numel() * layer.weight[0].numel()

    side = 8 * artifact.multiple
    with torch.device("meta"):  # only shapes: nothing is computed
        network = build(artifact.layout).eval()
        for layer in network.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.register_forward_hook(add)
        network(torch.empty(1, 3, side, side))
    return total / side**2


def peak_multiply_adds(threads: int, side: int = 1536) -> float:
    """Multiply-adds per second in fp32: the best of a few large matrix products."""
    import numpy as np

    one = np.random.default_rng(0).random((side, side), np.float32)
    product: Callable[[], object] = lambda: one @ one  # noqa: E731
    try:
        import torch

        torch.set_num_threads(threads)
        tensor = torch.from_numpy(one)
        product = lambda: tensor @ tensor  # noqa: E731
    except ModuleNotFoundError:
        pass
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        product()
        best = min(best, time.perf_counter() - started)
    return side**3 / best


def _ratio(base: list[float] | None, taken: list[float]) -> float | None:
    """The speed relative to `base`: median over the rounds."""
    return None if base is None else statistics.median(a / b for a, b in zip(base, taken, strict=True))


def _jpegs(paths: list[Path] | None, width: int, height: int) -> list[bytes]:
    from uepnet.bench.load import drawn_image, read_body

    return [read_body(path) for path in paths] if paths else [drawn_image(f"{width}x{height}")]


@contextmanager
def _given(model: Path) -> Iterator[Path]:
    yield model


@contextmanager
def _untrained(encoder: str) -> Iterator[Path]:
    """A model directory with an untrained network of this encoder, for timing only."""
    import tempfile

    from uepnet.bench.untrained_model import untrained_model

    with tempfile.TemporaryDirectory() as folder:
        yield untrained_model(Path(folder), encoder)


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    names = [name for name in rows[0] if name != "question"]
    table = Table(*(name.replace("_", " ") for name in names), title=rows[0]["question"], title_justify="left")
    for row in rows:
        table.add_row(*(_text(row[name]) for name in names))
    Console(highlight=False).print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
