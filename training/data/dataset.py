"""A data set's name, folder and split -> samples: an image's path and its points.

Points are continuous (x, y): the centre of pixel (i, j) is (i + 0.5, j + 0.5). The annotated count is the number of
points, those outside the frame included.

Splits: `train` and `test` are the release's own. `val`, `calibration` and `check` are our fixed parts of train, `fit`
is the rest of it, which training sees; where the release has a `val` of its own, that one is used. UCF_CC_50 has no
test split but five folds: fold k tests on its ten images and trains on the other forty.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from uepnet.model.errors import DataError
from uepnet.training import layouts, tables
from uepnet.training.annotations import nobody
from uepnet.training.layouts import images_in
from uepnet.training.sample import Points, Sample

__all__ = [
    "FOLDS",
    "LEFT_OUT",
    "READERS",
    "SPLITS",
    "Points",
    "Sample",
    "images_in",
    "load",
    "parts",
    "pictures",
    "released",
    "total_people",
]

SPLITS = ("train", "fit", "val", "calibration", "check", "test")

READERS: dict[str, Callable[[Path, str], list[Sample]]] = {
    "shanghaitech-a": layouts.shanghaitech("A"),
    "shanghaitech-b": layouts.shanghaitech("B"),
    "ucf-cc-50": layouts.ucf_cc_50,
    "ucf-qnrf": layouts.ucf_qnrf,
    "worldexpo10": layouts.worldexpo10,
    "jhu-crowd": layouts.jhu_crowd,
    "nwpu": layouts.nwpu,
    "mall": layouts.mall,
    "list": tables.listed,
    "coco": tables.coco,
    "csv": tables.table,
}
# Releases that have, or may have, a validation split of their own: their readers know `val` too.
OWN_VAL = frozenset({"jhu-crowd", "nwpu", "list", "coco", "csv"})

FOLDS = {"ucf-cc-50": 5}

# What becomes of the first of every sixteen images. `val` chooses, `calibration` fits the range, and where there are
# many images `check` is kept for the last look, at which nothing is chosen any more.
SHARES = ("val", "calibration", "calibration")
SHARES_OF_MANY = ("val", "calibration", "fit", "check")
MANY = 256

# Photographs of part A that stand in its test split too: never trained on.
LEFT_OUT = {"shanghaitech-a": frozenset(f"IMG_{number}.jpg" for number in (2, 60, 97, 121, 139, 154))}


def load(dataset: str, root: Path, split: str = "train", fold: int | None = None) -> list[Sample]:
    """The samples of a split, in natural order; `fold` for data sets that are cross-validated."""
    if split not in SPLITS:
        raise DataError(f"There is no split called {split!r}: choose {', '.join(SPLITS)}.")
    own_val = _read(dataset, root, "val", fold) if dataset in OWN_VAL and split in ("val", "fit") else []
    if split == "val" and own_val:
        return own_val
    samples = _read(dataset, root, "test" if split == "test" else "train", fold)
    if not samples:
        raise DataError(f"{root} holds no images for {dataset}, split {split}.")
    if split in ("train", "test"):
        return samples
    kept = [sample for sample in samples if sample.name not in LEFT_OUT.get(dataset, frozenset())]
    wanted = ("fit", "val") if split == "fit" and own_val else (split,)
    chosen = [sample for sample, part in zip(kept, parts(kept), strict=True) if part in wanted]
    if not chosen:
        raise DataError(f"{root} has {len(kept)} images to train on, too few to hold any back as {split}.")
    return chosen


def _read(dataset: str, root: Path, split: str, fold: int | None) -> list[Sample]:
    """What the release holds as `train`, `val` or `test`."""
    reader = READERS.get(dataset)
    if reader is None:
        raise DataError(f"There is no data set called {dataset!r}: choose {', '.join(READERS)}.")
    if not root.exists():
        raise DataError(f"The folder {root} does not exist.")
    if fold is None:
        return reader(root, split)
    folds = FOLDS.get(dataset)
    if folds is None:
        raise DataError(f"{dataset} has no folds.")
    if not 1 <= fold <= folds:
        raise DataError(f"{dataset} has no fold {fold}: choose 1 to {folds}.")
    return [sample for sample in reader(root, "train") if (layouts.fold_of(sample) == fold) == (split == "test")]


def released(dataset: str, root: Path) -> dict[str, list[Sample]]:
    """The splits of the release that are there."""
    found = {}
    for split in ("train", "val", "test"):
        if split == "val" and dataset not in OWN_VAL:
            continue
        try:
            found[split] = _read(dataset, root, split, None)
        except DataError:
            continue  # not every copy has every split
    return {split: samples for split, samples in found.items() if samples}


def parts(samples: Sequence[Sample]) -> list[str]:
    """`fit`, `val`, `calibration` or `check` for each sample: fixed, stratified by count, the same on every machine.

    Of every sixteen neighbours in the order of their counts, those whose names' hashes come first are held back.
    """
    held = SHARES if len(samples) < MANY else SHARES_OF_MANY
    order = sorted(range(len(samples)), key=lambda index: (len(samples[index].points), samples[index].name))
    result = ["fit"] * len(samples)
    for start in range(0, len(order), 16):
        stratum = sorted(order[start : start + 16], key=lambda index: _digest(samples[index].name))
        shares = held[: max(1, len(stratum) * len(held) // 16)] if len(stratum) > 5 else ()
        for index, part in zip(stratum, shares, strict=False):
            result[index] = part
    return result


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def pictures(folder: Path) -> list[Sample]:
    """Images with nobody in them."""
    found = images_in(folder)
    if not found:
        raise DataError(f"{folder} holds no images.")
    return [Sample(path.name, path, nobody) for path in found]


def total_people(samples: Iterable[Sample]) -> int:
    return sum(len(sample.points) for sample in samples)
