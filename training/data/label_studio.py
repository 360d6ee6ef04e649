"""Label Studio JSON and JSON-MIN: keypoints, rectangles, ellipses and polygons, in percent of the picture.

A task without a submitted annotation is not labelled yet: it is left out, and a note says so. A submitted annotation
without any region means that the image has no people.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from uepnet.model.errors import DataError
from uepnet.training.data import labels as labels_of
from uepnet.training.data.annotations import CONTINUOUS, as_points, read_json
from uepnet.training.data.coco import samples
from uepnet.training.data.listing import index_file, plain
from uepnet.training.data.sample import Points, Sample
from uepnet.training.data.scaling import to_picture

Region = dict[str, Any]
NO_PLACE = (
    "choices",
    "taxonomy",
    "textarea",
    "number",
    "rating",
    "datetime",
    "relation",
    "pairwise",
    "ranker",
    "chat",
)  # answers about the whole picture, by their type
NOT_IT = "{index} is not a Label Studio export: it needs a list of tasks with data and annotations (JSON, or JSON-MIN)."


@dataclass(frozen=True)
class Task:
    name: str
    regions: tuple[Region, ...]
    note: str = ""


def label_studio(root: Path, split: str, labels: frozenset[str] = frozenset()) -> list[Sample]:
    """Every task that somebody submitted is a sample."""
    index = index_file(root, split, ("*.json",))
    if index is None:
        return []
    content = read_json(index)
    if not isinstance(content, list) or not all(isinstance(task, dict) for task in content):
        raise DataError(NOT_IT.format(index=index))
    try:
        done = [task for task in map(_task, content) if task is not None]
    except (KeyError, TypeError, AttributeError, IndexError):
        raise DataError(NOT_IT.format(index=index)) from None
    if not done:
        raise DataError(f"{index} has {len(content)} tasks and no submitted annotation: submit the tasks, then export.")
    used = labels_of.count(label for task in done for region in task.regions for label in _labels(region))
    counted, notes = labels_of.choose(used, labels, "label-studio", index)
    if len(done) < len(content):
        notes = (*notes, f"{len(content) - len(done)} of {len(content)} tasks have no submitted annotation: left out")
    tasks: dict[str, Task] = {}
    for task in done:
        if task.name in tasks:
            raise DataError(f"{index} has several tasks for {task.name}: keep one of them.")
        tasks[task.name] = task
    people = {name: [r for r in task.regions if counted.intersection(_labels(r))] for name, task in tasks.items()}
    made = samples(index, people, _points, notes)
    return [_with_size(sample, index, tasks[sample.name]) for sample in made]


def _task(task: dict[str, Any]) -> Task | None:
    """The picture and the regions of the last annotation that was submitted; None if there is none."""
    if "data" not in task and "annotations" not in task and "completions" not in task:
        return _short_task(task)
    data = task["data"]
    name = _picture(data)
    submitted = [a for a in task.get("annotations", task.get("completions", [])) if not a.get("was_cancelled")]
    if not submitted:
        return None
    note = f"has {len(submitted)} annotations, the last one is used" if len(submitted) > 1 else ""
    regions = tuple(region for region in submitted[-1]["result"] if region.get("type") not in NO_PLACE)
    if not all(isinstance(region["value"], dict) for region in regions):
        raise TypeError("a region whose value is none")
    return Task(name, regions, note)


def _short_task(task: dict[str, Any]) -> Task | None:
    """JSON-MIN: the values of each tag of the labelling form, as lists beside the picture."""
    name = _picture(task)
    regions = [
        {"value": entry, "original_width": entry["original_width"], "original_height": entry["original_height"]}
        for value in task.values()
        if isinstance(value, list)
        for entry in value
        if isinstance(entry, dict) and "original_width" in entry
    ]
    return Task(name, tuple(regions)) if regions or "annotator" in task or "annotation_id" in task else None


def _picture(data: dict[str, Any]) -> str:
    """The picture's name: the value called image, or else the first text that may be a path."""
    texts = [value for value in data.values() if isinstance(value, str) and ("/" in value or "." in value)]
    return plain(str(data.get("image") or texts[0]))


def _labels(region: Region) -> Iterator[str]:
    """The first label of a region; regions without any have an empty one."""
    value = region["value"]
    found = [
        name for key, names in value.items() if key.endswith("labels") and isinstance(names, list) for name in names
    ]
    yield str(found[0]) if found else ""


def _with_size(sample: Sample, index: Path, task: Task) -> Sample:
    sizes = [(region.get("original_width"), region.get("original_height")) for region in task.regions]
    notes = (*sample.notes, *((task.note,) if task.note else ()))
    if not sizes or any(size != sizes[0] for size in sizes):
        return replace(sample, notes=notes)
    width, height = sizes[0]
    if not (isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0):
        return replace(sample, notes=notes, read_points=partial(_no_size, index, sample.name))
    return replace(
        sample, notes=notes, read_points=to_picture(sample.read_points, sample.image, (width, height), index)
    )


def _no_size(index: Path, name: str) -> Points:
    raise DataError(f"{index}: the regions of {name} have no original_width and original_height.")


def _points(index: Path, regions: Sequence[Region]) -> Points:
    if any(region.get("image_rotation") for region in regions):
        raise DataError(
            f"{index} has regions of a picture that was turned in Label Studio: turn the file instead, and annotate it "
            "again."
        )
    try:
        rows = [_point(region) for region in regions]
    except (KeyError, TypeError, ValueError, IndexError):
        raise DataError(
            f"{index} has a region without usable x and y: people are read from keypoints, rectangles, ellipses and "
            "polygons."
        ) from None
    return as_points(np.array(rows, dtype=np.float64).reshape(-1, 2), CONTINUOUS, index)


def _point(region: Region) -> tuple[float, float]:
    """A keypoint, the centre of a rectangle (which turns about its upper left corner), ellipse or polygon: pixels."""
    value = region["value"]
    width, height = float(region["original_width"]), float(region["original_height"])
    if "points" in value:
        corners = np.array(value["points"], dtype=np.float64).reshape(-1, 2)
        x, y = (corners.min(axis=0) + corners.max(axis=0)) / 2
        return float(x) * width / 100, float(y) * height / 100
    x, y = float(value["x"]) * width / 100, float(value["y"]) * height / 100
    box = any(key.startswith("rectangle") for key in value) or ("height" in value and "radiusX" not in value)
    if not box:
        return x, y  # a keypoint's `width` is the size of its dot
    half_width, half_height = float(value["width"]) * width / 200, float(value["height"]) * height / 200
    turn = math.radians(float(value.get("rotation") or 0))
    return (
        x + half_width * math.cos(turn) - half_height * math.sin(turn),
        y + half_width * math.sin(turn) + half_height * math.cos(turn),
    )
