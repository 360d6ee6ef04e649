"""What users bring: one file that lists pictures and people. The reference list, CSV and COCO JSON.

The file is `--root` itself, or lies in that folder, or in `annotations/` there, or in a folder called as the split. The
words of its name say its split: train.csv, test.list, instances_val2017.json; a file whose name says none is `train`.
A person whose annotation cannot be used is found when the image's points are read, not before.
"""

import csv
import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from uepnet.model.errors import DataError
from uepnet.training.annotations import ZERO_BASED, as_points, read_json, read_text, text_points
from uepnet.training.sample import Points, Sample

SPLIT_WORDS = {
    "train": {"train", "training"},
    "val": {"val", "valid", "validation"},
    "test": {"test", "testing"},
}
PEOPLE = {"person", "people", "pedestrian", "head", "face", "human"}


def listed(root: Path, split: str) -> list[Sample]:
    """Lines `image annotation.txt`, both relative to the list; each annotation has lines `x y`, 0-based."""
    index = _index(root, split, ("*.list", "train*.txt", "val*.txt", "test*.txt"))
    if index is None:
        return []
    samples = []
    for number, line in enumerate(read_text(index).splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2:
            raise DataError(f"Line {number} of {index} is not `image annotation`, two paths without blanks in them.")
        image, annotation = (index.parent / field for field in fields)
        read = partial(text_points, annotation, ZERO_BASED)
        samples.append(Sample(fields[0], image, read, annotations=(annotation,)))
    return samples


def table(root: Path, split: str) -> list[Sample]:
    """A CSV file with the columns image, x, y: a row a person; a row without x and y lists a picture with nobody."""
    index = _index(root, split, ("*.csv",))
    if index is None:
        return []
    lines = read_text(index).splitlines()
    header = lines[0] if lines else ""
    delimiter = max(",;\t", key=header.count)
    columns = [column.strip().lower() for column in header.split(delimiter)]
    if not {"image", "x", "y"} <= set(columns):
        raise DataError(f"{index} needs a first line with the columns image, x and y.")
    at = [columns.index(name) for name in ("image", "x", "y")]
    people: dict[str, list[tuple[int, str, str]]] = {}
    for number, row in enumerate(csv.reader(lines[1:], delimiter=delimiter), start=2):
        if not any(row):
            continue
        name, x, y = ((row[column].strip() if column < len(row) else "") for column in at)
        if not name:
            raise DataError(f"Line {number} of {index} names no image.")
        rows = people.setdefault(_plain(name), [])
        if x or y:
            rows.append((number, x, y))
    return _samples(index, people, _row_points)


def _row_points(index: Path, rows: Sequence[tuple[int, str, str]]) -> Points:
    values = []
    for number, *texts in rows:
        try:
            x, y = map(float, texts)
        except ValueError:
            x = y = math.nan
        if not (math.isfinite(x) and math.isfinite(y)):
            raise DataError(f"Line {number} of {index}: x and y are not both numbers.")
        values.append((x, y))
    return np.array(values).reshape(-1, 2)


def coco(root: Path, split: str) -> list[Sample]:
    """COCO JSON: `images`, and `annotations` with `keypoints`, `point` or `bbox`, one a person."""
    index = _index(root, split, ("*.json",))
    if index is None:
        return []
    content = read_json(index)
    try:
        images = {image["id"]: _plain(str(image["file_name"])) for image in content["images"]}
        kinds = _counted(content.get("categories", []))
        people: dict[str, list[Any]] = {name: [] for name in images.values()}
        for annotation in content["annotations"]:
            if annotation.get("iscrowd") or (kinds and annotation.get("category_id") not in kinds):
                continue
            number = annotation["image_id"]
            # People of an image that is not listed: kept under a name that has no file, for a check to find.
            people.setdefault(images.get(number, f"image {number}"), []).append(annotation)
    except (KeyError, TypeError, AttributeError):
        raise DataError(
            f"{index} is not COCO: it needs images with id and file_name, and annotations with image_id."
        ) from None
    return _samples(index, people, _coco_points)


def _counted(categories: Sequence[dict[str, Any]]) -> set[Any]:
    """The categories that are people, where any is called so; else none, and all annotations count."""
    return {kind["id"] for kind in categories if str(kind.get("name", "")).lower() in PEOPLE}


def _coco_points(index: Path, annotations: Sequence[dict[str, Any]]) -> Points:
    try:
        points = [_coco_point(annotation) for annotation in annotations]
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{index} has an annotation without usable keypoints, point or bbox.") from None
    return _finite(points, index)


def _coco_point(annotation: dict[str, Any]) -> tuple[float, float]:
    """The first labelled keypoint (a body's first one is its nose), the point, or the centre of the box."""
    keypoints = annotation.get("keypoints") or []
    for x, y, visibility in zip(keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True):
        if visibility:
            return float(x) + ZERO_BASED, float(y) + ZERO_BASED
    if "point" in annotation:
        x, y = annotation["point"]
        return float(x) + ZERO_BASED, float(y) + ZERO_BASED
    x, y, width, height = annotation["bbox"]
    return float(x) + float(width) / 2, float(y) + float(height) / 2


def _finite(values: Sequence[tuple[float, float]], index: Path) -> Points:
    return as_points(np.array(values, dtype=np.float64).reshape(-1, 2), 0.0, index)


def _samples(index: Path, people: dict[str, list[Any]], read: Any) -> list[Sample]:
    """In the order of the file. Pictures lie beside it, in `images/`, or where COCO's tools put them."""
    base = index.parent.parent if index.parent.name == "annotations" else index.parent
    subset = index.stem.rpartition("_")[2]
    folders = (base, base / "images", base / "images" / subset, base / subset)
    return [
        Sample(
            name,
            next((folder / name for folder in folders if (folder / name).is_file()), base / name),
            partial(read, index, rows),
        )
        for name, rows in people.items()
    ]


def _plain(name: str) -> str:
    """One spelling a file: forward slashes, no leading `./`."""
    return str(PurePosixPath(name.replace("\\", "/")))


def _index(root: Path, split: str, patterns: Sequence[str]) -> Path | None:
    """The file of a split; None where there is no `val` (it is then cut from train)."""
    if root.is_file():
        # A file is a split of its own. Asked for `test`, it must say so: else training data would be tested on.
        found = [root] if split == "train" or _split(root.name) == split else []
    else:
        folders = [root, root / "annotations", *(root / word for word in sorted(SPLIT_WORDS[split]))]
        files = [path for folder in folders for pattern in patterns for path in sorted(folder.glob(pattern))]
        splits = {path: _split(path.relative_to(root).as_posix()) for path in files}
        found = [path for path in splits if splits[path] == split]
        if not found and split == "train":
            found = [path for path in splits if splits[path] is None]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise DataError(f"{root} holds several lists ({names}): give the one to use as the root.")
    if not found and split != "val":
        advice = ": its name must say so, as test does in test.csv; or use the split val" if split == "test" else ""
        raise DataError(f"{root} is or holds no {patterns[0]} for the {split} split{advice}.")
    return found[0] if found else None


def _split(name: str) -> str | None:
    words = set(re.findall(r"[a-z]+", name.lower()))
    return next((split for split, marks in SPLIT_WORDS.items() if words & marks), None)
