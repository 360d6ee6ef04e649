"""Which images are held back from training, by name and content: what splits.json publishes."""

import hashlib
from pathlib import Path

from uepnet.training.dataset import LEFT_OUT, load

PUBLISHED = Path(__file__).with_name("splits.json")


def held_back(dataset: str, root: Path) -> dict[str, dict[str, str]]:
    """`val`, `calibration` and `left_out`: each file name with the sha256 of the image file."""
    left_out = LEFT_OUT.get(dataset, frozenset())
    groups = {
        "val": load(dataset, root, "val"),
        "calibration": load(dataset, root, "calibration"),
        "left_out": [sample for sample in load(dataset, root, "train") if sample.name in left_out],
    }
    return {
        group: {sample.name: hashlib.sha256(sample.image.read_bytes()).hexdigest() for sample in samples}
        for group, samples in groups.items()
    }
