"""Train candidates in turn at an equal budget of pixels, and measure error against cost.

    python -m uepnet.bench.frontier DATA OUT [NAME ...] --copies DIR --weights DIR [--pixels 1e9] [--bfloat16]

DATA holds ShanghaiTech/, cameras/, no-people/ and weights/; --weights holds the PyPI files of Lite1 and Lite2. A run
that was stopped goes on, a finished one is only measured; OUT/NAME/frontier.json holds the figures of each.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from uepnet.commands.shared.models import open_model
from uepnet.model.artifact import Artifact
from uepnet.model.count import RunTiles, count_image
from uepnet.training.cost import multiply_adds_per_pixel
from uepnet.training.data.dataset import Sample, load
from uepnet.training.data.degrade import Picture, video
from uepnet.training.prepare import empties

CAMERAS = ("drone", "platform", "seated", "street", "handheld")
CROP, BATCH = 256, 8
# Encoder, decoder, scale at which images are counted. Tiles are scaled around it by the same factors.
CANDIDATES = {
    "lite2-lean-1.0": ("efficientnet-lite2", "lean", 1.0),
    "lite0-full-1.5": ("efficientnet-lite0", "full", 1.5),
    "lite2-lean-1.25": ("efficientnet-lite2", "lean", 1.25),
    "lite0-lean-1.25": ("efficientnet-lite0", "lean", 1.25),
    "lite1-lean-1.25": ("efficientnet-lite1", "lean", 1.25),
}
SCALES = (0.55, 1.45)  # of training tiles, times the scale of counting
RECIPE = (
    "--repeat 3 2 1 1 1 1 1 --empty-share 0.2 --degraded-share 0.3 --degrade 0.2 --kernel adaptive:6:20 --jitter 0.3 "
    "--freeze 3 --encoder-rate 0.3 --lr 1e-3 --weight-decay 0.03 --average 0.998 --seed 26 --validate-images 20 "
    "--checkpoint-seconds 180 --threads 2"
)


def command(name: str, args: argparse.Namespace) -> list[str]:
    """The line that trains a candidate, or goes on with it."""
    line = [sys.executable, "-m", "uepnet", "train"]
    run = args.out / name
    if (run / "config.json").is_file():
        return [*line, "--resume", str(run)]
    encoder, decoder, scale = CANDIDATES[name]
    member = encoder.removeprefix("efficientnet-")
    folders = (args.data / "weights", args.weights)
    weights = sorted(path for folder in folders for path in folder.glob(f"*{member}*.pth"))
    if not weights:
        raise SystemExit(f"There are no ImageNet weights of {encoder} in {args.weights}.")
    roots = [args.data / "ShanghaiTech"] * 2 + [args.data / "cameras" / kind for kind in CAMERAS]
    steps = max(1, round(args.pixels / (BATCH * CROP**2)))
    line += ["--dataset", ",".join(["shanghaitech-a", "shanghaitech-b", *["csv"] * len(CAMERAS)])]
    line += ["--root", ",".join(map(str, roots)), "--empty", str(args.data / "no-people")]
    line += ["--degraded", str(args.copies), "--encoder", encoder, "--decoder", decoder, "--init", str(weights[0])]
    line += ["--input-scale", f"{scale:g}", "--scale", *(f"{scale * factor:.3g}" for factor in SCALES)]
    line += ["--crop", str(CROP), "--batch", str(BATCH), "--steps", str(steps), "--validate-every", str(steps)]
    return [*line, *RECIPE.split(), *(["--bfloat16"] if args.bfloat16 else []), "--out", str(run)]


def counts(
    samples: Sequence[Sample],
    artifact: Artifact,
    run_tiles: RunTiles,
    change: Callable[[Picture], Picture] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The counts of the samples and the annotated ones."""
    pictures = (sample.load_image() for sample in samples)
    found = [count_image(change(one) if change else one, artifact, run_tiles).count for one in pictures]
    return np.array(found), np.array([len(sample.points) for sample in samples])


def errors(run: Path, data: Path) -> dict[str, float]:
    """What the held-back images say of a run; `over_people` is the summed error over the summed people."""
    artifact, run_tiles, _ = open_model(run, "cpu", threads=2)
    rows: dict[str, float] = {}
    rng = np.random.default_rng(0)
    h264 = video("h264", crf=28)
    groups: list[tuple[str, list[Sample], Callable[[Picture], Picture] | None]] = [
        ("a", load("shanghaitech-a", data / "ShanghaiTech", "val"), None),
        ("b", load("shanghaitech-b", data / "ShanghaiTech", "val"), None),
        ("b_h264", load("shanghaitech-b", data / "ShanghaiTech", "val"), lambda image: h264(image, rng)),
        *((kind, load("csv", data / "cameras" / kind, "val"), None) for kind in CAMERAS),
    ]
    for name, samples, change in groups:
        found, truth = counts(samples, artifact, run_tiles, change)
        error = np.abs(found - truth)
        rows[f"{name}_mae"] = float(error.mean())
        rows[f"{name}_bias"] = float((found - truth).mean())
        rows[f"{name}_over_people"] = float(error.sum() / truth.sum())
    nobody, _ = counts(empties(str(data / "no-people"), held_back=True), artifact, run_tiles)
    rows["empty_90th"] = float(np.quantile(nobody, 0.9))
    rows["images"] = float(sum(len(samples) for _, samples, _ in groups) + len(nobody))
    return rows


def cost(run: Path, data: Path) -> dict[str, float]:
    """Multiply-adds, and the milliseconds of a 1024x768 photograph as int8 beside the bundled model's."""
    artifact = Artifact.load(run)
    per_pixel = multiply_adds_per_pixel(artifact.layout)
    rows = {"multiply_adds_per_pixel": per_pixel, "giga_at_1024x768": per_pixel * artifact.scale**2 * 1024 * 768 / 1e9}
    folder = run / "timing"
    if not folder.exists():
        write_int8(run, folder, load("shanghaitech-b", data / "ShanghaiTech", "calibration")[:4])
    photograph = load("shanghaitech-b", data / "ShanghaiTech", "calibration")[0].load_image()
    models = {"int8_ms": open_model(folder, "cpu", "int8", 2), "bundled_int8_ms": open_model(None, "cpu", "int8", 2)}
    best = dict.fromkeys(models, float("inf"))
    for _ in range(12):  # in turns, the fastest of each: other work on the machine hits both
        for name, (own, run_tiles, _) in models.items():
            started = time.perf_counter()
            count_image(photograph, own, run_tiles)
            best[name] = min(best[name], 1000 * (time.perf_counter() - started))
    return rows | best


def write_int8(run: Path, folder: Path, samples: Sequence[Sample]) -> None:
    """A model directory with an int8 file for timing: its accuracy is not checked."""
    import hashlib

    from uepnet.model.artifact import ModelFile
    from uepnet.training.onnx_graph import folded, to_onnx
    from uepnet.training.parity import Probe
    from uepnet.training.prepare import load_network
    from uepnet.training.quantise import quantise_blindly
    from uepnet.training.workbench import file_name

    artifact = Artifact.load(run)
    fp32 = to_onnx(folded(load_network(run, artifact)), artifact)
    probes = [Probe(sample.name, sample.load_image()[:512, :512]) for sample in samples]
    content = quantise_blindly(fp32, probes).SerializeToString(deterministic=True)
    folder.mkdir()
    (folder / file_name("int8")).write_bytes(content)
    entry = ModelFile(file=file_name("int8"), sha256=hashlib.sha256(content).hexdigest())
    artifact.model_copy(update={"files": {"int8": entry}}).save(folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m uepnet.bench.frontier", description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CANDIDATES)}; all without any")
    parser.add_argument("--copies", type=Path, required=True, help="degraded copies, from `uepnet data degrade`")
    parser.add_argument("--weights", type=Path, required=True, help="the folder of the weights of Lite1 and Lite2")
    parser.add_argument("--pixels", type=float, default=1e9, help="training pixels of each candidate (1e9)")
    parser.add_argument("--bfloat16", action="store_true", help="for CPUs that multiply it")
    args = parser.parse_args()
    for name in args.names or CANDIDATES:
        run = args.out / name
        line = command(name, args)
        print(" ".join(line), flush=True)
        code = subprocess.run(line).returncode
        if code:
            return code
        figures = errors(run, args.data) | cost(run, args.data)
        (run / "frontier.json").write_text(json.dumps(figures, indent=1) + "\n")
        print(name, json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
