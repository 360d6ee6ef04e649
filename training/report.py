"""The figures of a model card: errors, ranges, empty scenes, other sizes."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from PIL import Image

from uepnet.model.artifact import Artifact
from uepnet.model.count import RunTiles, count_image
from uepnet.training.calibrate import coverage_left_out
from uepnet.training.data.dataset import Sample
from uepnet.training.data.synthetic import KINDS
from uepnet.training.evaluate import evaluate, summary

SIZES = (0.5, 2.0)
DRAWN_EACH = 10
SEED = 20_210  # of the drawn scenes here; training uses other seeds

Numbers = dict[str, float | int | None]


def report(
    groups: Mapping[str, Sequence[Sample]],
    calibration: Sequence[Sample],
    empties: Sequence[Sample],
    artifact: Artifact,
    run_tiles: RunTiles,
    watch: Callable[[], None] = lambda: None,
) -> dict[str, Numbers]:
    """One row for each group of samples, and one each for ranges, empty scenes, drawn scenes and sizes."""
    rows: dict[str, Numbers] = {}
    for name, samples in groups.items():
        rows[name] = summary(evaluate(samples, artifact, run_tiles, lambda _: watch()))
    held = evaluate(calibration, artifact, run_tiles, lambda _: watch())
    if len(held) >= 20:
        counts, truths = np.array([r.counted for r in held]), np.array([float(r.truth) for r in held])
        rows["calibration"] = {"images": len(held), "coverage_left_out": coverage_left_out(counts, truths)}
    rows["empty"] = _empty([count_image(_watched(s, watch), artifact, run_tiles).count for s in empties])
    rng = np.random.default_rng(SEED)
    drawn = [np.asarray(make(rng, 640, 480)) for make in KINDS.values() for _ in range(DRAWN_EACH)]
    rows["drawn"] = _empty([count_image(image, artifact, run_tiles).count for image in drawn])
    chosen = [sample for samples in groups.values() for sample in samples[::3]]
    rows["sizes"] = _sizes(chosen, artifact, run_tiles, watch)
    return rows


def _watched(sample: Sample, watch: Callable[[], None]) -> np.ndarray:
    watch()
    return sample.load_image()


def _empty(counts: Sequence[float]) -> Numbers:
    """People counted in images without people."""
    if not counts:
        return {"images": 0}
    return {
        "images": len(counts),
        "median": float(np.median(counts)),
        "ninety_per_cent": float(np.quantile(counts, 0.9)),
        "mean": float(np.mean(counts)),
        "most": float(np.max(counts)),
    }


def _sizes(samples: Sequence[Sample], artifact: Artifact, run_tiles: RunTiles, watch: Callable[[], None]) -> Numbers:
    """Relative change of the count when the same image has another size."""
    moved: dict[float, list[float]] = {size: [] for size in SIZES}
    for sample in samples:
        image = Image.fromarray(sample.load_image())
        count = count_image(np.asarray(image), artifact, run_tiles).count
        for size in SIZES:
            resized = image.resize((round(image.width * size), round(image.height * size)), Image.Resampling.BICUBIC)
            other = count_image(np.asarray(resized), artifact, run_tiles).count
            moved[size].append((other - count) / max(count, 1.0))
        watch()
    rows: Numbers = {"images": len(samples)}
    for size, shares in moved.items():
        rows[f"mean_change_at_{size:g}"] = float(np.mean(shares))
        rows[f"mean_absolute_change_at_{size:g}"] = float(np.mean(np.abs(shares)))
    return rows
