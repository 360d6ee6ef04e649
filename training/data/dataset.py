"""A data set's name, folder and split -> samples: an image's path and its points.

Points are continuous (x, y): the centre of pixel (i, j) is (i + 0.5, j + 0.5). The annotated count is the number of
points, those outside the frame included.

Splits: `train` and `test` are the release's own. `val`, `calibration` and `check` are our fixed parts of train, `fit`
is the rest of it, which training sees; where the release has a `val` of its own, that one is used. `usable` is train
without the images that are never trained on. UCF_CC_50 has no test split but five folds: fold k tests on its ten images
and trains on the other forty.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from uepnet.model.errors import DataError
from uepnet.training.data import annotation_tables, layouts
from uepnet.training.data.annotations import nobody
from uepnet.training.data.coco import coco
from uepnet.training.data.cvat import cvat
from uepnet.training.data.label_studio import label_studio
from uepnet.training.data.layouts import images_in
from uepnet.training.data.sample import Points, Sample
from uepnet.training.data.yolo import yolo

__all__ = [
    "FOLDS",
    "READERS",
    "SPLITS",
    "Points",
    "Sample",
    "images_in",
    "left_out",
    "load",
    "parts",
    "pictures",
    "released",
    "total_people",
]

SPLITS = ("train", "fit", "val", "calibration", "check", "test", "usable")


class LabelledReader(Protocol):
    """A reader of annotations that have labels; without `labels` it counts those that mean people."""

    def __call__(self, root: Path, split: str, labels: frozenset[str] = frozenset()) -> list[Sample]: ...


READERS: dict[str, Callable[[Path, str], list[Sample]]] = {
    "shanghaitech-a": layouts.shanghaitech("A"),
    "shanghaitech-b": layouts.shanghaitech("B"),
    "ucf-cc-50": layouts.ucf_cc_50,
    "ucf-qnrf": layouts.ucf_qnrf,
    "worldexpo10": layouts.worldexpo10,
    "jhu-crowd": layouts.jhu_crowd,
    "nwpu": layouts.nwpu,
    "mall": layouts.mall,
    "list": annotation_tables.listed,
    "coco": coco,
    "csv": annotation_tables.table,
    "cvat": cvat,
    "label-studio": label_studio,
    "yolo": yolo,
}
# Formats whose annotations have labels; `coco:Kopf+person` counts these two alone.
LABELLED: dict[str, LabelledReader] = {
    "coco": coco,
    "cvat": cvat,
    "label-studio": label_studio,
    "yolo": yolo,
}
# Releases that have, or may have, a validation split of their own: their readers know `val` too.
OWN_VAL = frozenset({"jhu-crowd", "nwpu", "list", "coco", "csv", "cvat", "label-studio", "yolo"})

FOLDS = {"ucf-cc-50": 5}

# What becomes of the first of every sixteen images. `val` chooses, `calibration` fits the range, and where there are
# many images `check` is kept for the last look, at which nothing is chosen any more.
SHARES = ("val", "calibration", "calibration")
SHARES_OF_MANY = ("val", "calibration", "fit", "check")
MANY = 256
LEAST = 6  # images of a stratum from which on some are held back

LEFT_OUT_FILE = Path(__file__).with_name("left_out.json")


@cache
def _left_out(dataset: str) -> dict[str, dict[str, str]]:
    """What left_out.json says of a data set: `in_test_split` and `wrong_labels`, each image with the reason."""
    published: dict[str, dict[str, dict[str, str]]] = json.loads(LEFT_OUT_FILE.read_text())
    return published.get(dataset, {})


def left_out(dataset: str) -> frozenset[str]:
    """The images of train that are neither trained on nor measured with."""
    return frozenset(name for images in _left_out(dataset).values() for name in images)


def load(dataset: str, root: Path, split: str = "train", fold: int | None = None) -> list[Sample]:
    """The samples of a split, in natural order; `fold` for data sets that are cross-validated."""
    if split not in SPLITS:
        raise DataError(f"There is no split called {split!r}: choose {', '.join(SPLITS)}.")
    own_val = _read(dataset, root, "val", fold) if _base(dataset) in OWN_VAL and split in ("val", "fit") else []
    if split == "val" and own_val:
        return own_val
    samples = _read(dataset, root, "test" if split == "test" else "train", fold)
    if not samples:
        raise DataError(f"{root} lists no picture for the {'test' if split == 'test' else 'train'} split of {dataset}.")
    if split in ("train", "test"):
        return samples
    if split == "usable":
        return [sample for sample in samples if sample.name not in left_out(dataset)]
    # Images whose labels turned out wrong later are dropped after the split: it stays as it was published.
    kept = [sample for sample in samples if sample.name not in _left_out(dataset).get("in_test_split", {})]
    wanted = ("fit", "val") if split == "fit" and own_val else (split,)
    chosen = [
        sample
        for sample, part in zip(kept, parts(kept), strict=True)
        if part in wanted and sample.name not in left_out(dataset)
    ]
    if not chosen:
        raise DataError(f"{root} has {len(kept)} images to train on, too few to hold back any as {split}.")
    return chosen


def _read(dataset: str, root: Path, split: str, fold: int | None) -> list[Sample]:
    """What the release holds as `train`, `val` or `test`."""
    base, _, chosen = dataset.partition(":")
    reader = READERS.get(base)
    if reader is None:
        raise DataError(f"There is no data set called {base!r}: choose {', '.join(READERS)}.")
    if chosen and base not in LABELLED:
        raise DataError(f"{base} has no labels to choose ({chosen!r}): {', '.join(LABELLED)} have.")
    if not root.exists():
        raise DataError(f"The folder {root} does not exist.")
    if chosen:
        reader = partial(LABELLED[base], labels=frozenset(chosen.split("+")))
    if fold is None:
        return reader(root, split)
    folds = FOLDS.get(dataset)
    if folds is None:
        raise DataError(f"{dataset} has no folds.")
    if not 1 <= fold <= folds:
        raise DataError(f"{dataset} has no fold {fold}: choose 1 to {folds}.")
    return [sample for sample in reader(root, "train") if (layouts.fold_of(sample) == fold) == (split == "test")]


def _base(dataset: str) -> str:
    """`coco` of `coco:Kopf+person`."""
    return dataset.partition(":")[0]


def released(dataset: str, root: Path) -> dict[str, list[Sample]]:
    """The splits of the release that exist."""
    found = {}
    for split in ("train", "val", "test"):
        if split == "val" and _base(dataset) not in OWN_VAL:
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
        shares = held[: max(1, len(stratum) * len(held) // 16)] if len(stratum) >= LEAST else ()
        for index, part in zip(stratum, shares, strict=False):
            result[index] = part
    return result


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def pictures(folder: Path) -> list[Sample]:
    """Images without people."""
    found = images_in(folder)
    if not found:
        raise DataError(f"{folder} holds no images.")
    return [Sample(path.name, path, nobody) for path in found]


def total_people(samples: Iterable[Sample]) -> int:
    return sum(len(sample.points) for sample in samples)
