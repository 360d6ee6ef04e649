"""The images that are held back from training, by name and content, as published in splits.json."""

import hashlib
from pathlib import Path

from uepnet.model.errors import DataError
from uepnet.training.data.dataset import Sample, left_out, load

PUBLISHED = Path(__file__).with_name("splits.json")


def held_back(dataset: str, root: Path) -> dict[str, dict[str, str]]:
    """`val`, `calibration`, `check` and `left_out`: each file name with the sha256 of the image file."""
    samples = load(dataset, root, "train")
    groups = {split: _part(dataset, root, split) for split in ("val", "calibration", "check")}
    groups["left_out"] = [sample for sample in samples if sample.name in left_out(dataset)]
    return {
        group: {sample.name: hashlib.sha256(sample.image.read_bytes()).hexdigest() for sample in samples}
        for group, samples in groups.items()
    }


def _part(dataset: str, root: Path, split: str) -> list[Sample]:
    """None where there are too few images to hold any back."""
    try:
        return load(dataset, root, split)
    except DataError:
        return []
