"""YOLO text files: `labels/NAME.txt` beside `images/NAME.jpg`, lines `class x y width height` as shares of the picture.

Only pictures with a label file are part of the data set; an empty label file means no people.
Splits are folders (`labels/train`, `train/labels`); names of classes stand in data.yaml, classes.txt or obj.names.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from uepnet.model.errors import DataError
from uepnet.model.file_names import natural
from uepnet.training.data import labels as labels_of
from uepnet.training.data.annotations import as_points, read_text
from uepnet.training.data.listing import SPLIT_WORDS, Pictures, advice
from uepnet.training.data.sample import Points, Sample, upright_size

CLASS_FILES = ("classes.txt", "obj.names", "_darknet.labels")
NO_LABELS = {
    *CLASS_FILES,
    "train.txt",
    "val.txt",
    "test.txt",
    "readme.txt",
    "readme.dataset.txt",
    "readme.roboflow.txt",
}
SHARE = 1.5  # a centre beyond it is no share of the picture but a number of pixels


def yolo(root: Path, split: str, labels: frozenset[str] = frozenset()) -> list[Sample]:
    """A sample for each label file, in natural order."""
    if not root.is_dir():
        raise DataError(f"{root} is a file: for YOLO the root is the folder that holds images/ and labels/.")
    folder = _labels_folder(root, split)
    files = _label_files(folder) if folder else []
    if folder is None or not files:
        if split == "val":
            return []
        raise DataError(
            f"{root} holds no YOLO labels for the {split} split, labels/NAME.txt beside images/NAME.jpg"
            f"{advice(root, split, ('*.txt',))}."
        )
    names = _class_names(root)
    used = labels_of.count(names.get(number, f"class {number}") for file in files for number, *_ in _quietly(file))
    counted, notes = labels_of.choose(used, labels, "yolo", folder, names.values())
    classes = frozenset(
        number for file in files for number, *_ in _quietly(file) if names.get(number, f"class {number}") in counted
    )
    made = []
    for file in files:
        image, found = _picture(root, folder, file)
        read = partial(_points, file, image, classes)
        made.append(Sample(image.name, image, read, annotations=(file,), notes=(*notes, *found)))
        notes = ()
    return made


def _labels_folder(root: Path, split: str) -> Path | None:
    """labels/train, train/labels, train; for train labels/ or the root itself, too."""
    words = sorted(SPLIT_WORDS[split])
    places = [root / part for word in words for part in (f"labels/{word}", f"{word}/labels", word)]
    if split == "train":
        places += [root / "labels", root / "obj_train_data", root]
    return next((place for place in places if place.is_dir() and _label_files(place)), None)


def _label_files(folder: Path) -> list[Path]:
    files = (path for path in folder.glob("*.txt") if path.name.lower() not in NO_LABELS)
    return sorted(files, key=lambda path: natural(path.name))


def _picture(root: Path, folder: Path, file: Path) -> tuple[Path, tuple[str, ...]]:
    """images/ in place of labels/ in the path, else beside the label file or anywhere below the root's images/."""
    parts = ["images" if part == "labels" else part for part in folder.relative_to(root).parts]
    for place in (root.joinpath(*parts), folder, root / "images"):
        for suffix in (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".bmp", ".webp", ".tif", ".tiff"):
            if (path := place / f"{file.stem}{suffix}").is_file():
                return path, ()
    found, notes = Pictures(root / "labels.txt").find(file.stem)
    if found.is_file():
        return found, notes if found.stem != file.stem else ()  # its ending is not part of the name that is listed
    return root.joinpath(*parts) / f"{file.stem}.jpg", ()


def _class_names(root: Path) -> dict[int, str]:
    for name in ("data.yaml", "data.yml", "dataset.yaml"):
        if (root / name).is_file():
            return _yaml_names(root / name)
    for name in CLASS_FILES:
        for path in (root / name, root / "labels" / name):
            if path.is_file():
                return dict(enumerate(line.strip() for line in read_text(path).splitlines() if line.strip()))
    return {}


def _yaml_names(path: Path) -> dict[int, str]:
    import yaml

    try:
        content: Any = yaml.safe_load(read_text(path))
        names = content.get("names", []) if isinstance(content, dict) else []
        pairs = names.items() if isinstance(names, dict) else enumerate(names)
        found = {int(number): name for number, name in pairs}
        if any(isinstance(name, dict | list) for name in found.values()):  # aliases can make it endless
            raise TypeError("names of names")
        return {number: str(name) for number, name in found.items()}
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError):
        raise DataError(f"{path} is not YAML with a list `names` of the classes.") from None


def _rows(file: Path) -> Iterator[tuple[int, float, float]]:
    """(class, x, y) of each line, x and y as shares of the picture."""
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        try:
            kind, values = int(float(fields[0])), [float(value) for value in fields[1:]]
        except (ValueError, OverflowError):  # infinity is no class
            values = []
        if len(values) < 4:
            raise DataError(
                f"Line {number} of {file} is not `class x y width height`, shares of the picture with decimal points "
                "and blanks between them."
            )
        x, y = _centre(values)
        if not (-SHARE < x < SHARE and -SHARE < y < SHARE):
            raise DataError(
                f"Line {number} of {file}: YOLO's x and y are shares of the picture from 0 to 1, not {x:g} and {y:g}."
            )
        yield kind, x, y


def _centre(values: list[float]) -> tuple[float, float]:
    """A box's centre comes first; an outline (x y x y x y ...) has an even number of at least six values."""
    if len(values) < 6 or len(values) % 2:
        return values[0], values[1]
    corners = np.array(values).reshape(-1, 2)
    x, y = (corners.min(axis=0) + corners.max(axis=0)) / 2
    return float(x), float(y)


def _quietly(file: Path) -> list[tuple[int, float, float]]:
    """The rows of a file; a broken one has none here and is reported where its points are read."""
    try:
        return list(_rows(file))
    except DataError:
        return []


def _points(file: Path, image: Path, classes: frozenset[int]) -> Points:
    rows = [(x, y) for kind, x, y in _rows(file) if kind in classes]
    points = as_points(np.array(rows, dtype=np.float64).reshape(-1, 2), 0.0, file)
    if not len(points):
        return points
    if not image.is_file():
        return points  # reported where pixels are read
    width, height, _ = upright_size(image)
    return points * np.array([width, height], dtype=np.float64)
