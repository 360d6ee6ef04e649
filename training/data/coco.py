"""COCO JSON: `images`, `categories`, and `annotations` with `keypoints`, `point`, `bbox` or `segmentation`."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from uepnet.model.errors import DataError
from uepnet.training.data import labels as labels_of
from uepnet.training.data.annotations import PROPOSED, UNCORRECTED, ZERO_BASED, as_points, read_json
from uepnet.training.data.listing import Pictures, index_file, plain
from uepnet.training.data.sample import Points, Sample
from uepnet.training.data.scaling import to_picture

NO_ANNOTATION = (
    "{index} lists {images} pictures and not one annotation. CVAT leaves points without a skeleton out of COCO: "
    "export as `CVAT for images 1.1` and use --dataset cvat."
)
CROWDS = (
    "{index} has annotations of whole crowds alone (iscrowd), which do not say how many people they hold: mark each "
    "person."
)


def coco(root: Path, split: str, labels: frozenset[str] = frozenset()) -> list[Sample]:
    """One annotation is one person; an image without annotations has no people."""
    index = index_file(root, split, ("*.json",))
    if index is None:
        return []
    content = read_json(index)
    try:
        # Some tools write an identifier as a number in one place and as text in another.
        images = {str(image["id"]): _listed(image) for image in content["images"]}
        names = {str(kind["id"]): str(kind.get("name", "")) for kind in content.get("categories") or []}
        single = [annotation for annotation in content["annotations"] if not annotation.get("iscrowd")]
        places = [str(annotation["image_id"]) for annotation in single]
        kinds = [names.get(str(annotation.get("category_id")), "") for annotation in single]
        proposed = PROPOSED in (content.get("info") or {})
    except (KeyError, TypeError, AttributeError):
        raise DataError(
            f"{index} is not COCO: it needs images with id and file_name, and annotations with image_id."
        ) from None
    if single and not images:
        raise DataError(f"{index} has {len(single)} annotations and an empty list of images.")
    if images and not single:
        only = CROWDS if content["annotations"] else NO_ANNOTATION
        raise DataError(only.format(index=index, images=len(images)))
    if len(images) < len(content["images"]):
        raise DataError(f"{index} gives one id to several images: no annotation can be told from another's.")
    counted, notes = labels_of.choose(labels_of.count(kinds), labels, "coco", index, names.values())
    notes = (*notes, UNCORRECTED) if proposed else notes
    _refuse_twice(index, [name for name, _ in images.values()])
    sizes = dict(images.values())
    people: dict[str, list[Any]] = {name: [] for name in sizes}
    for number, kind, annotation in zip(places, kinds, single, strict=True):
        if kind in counted:
            # People of an image that is not listed: kept under a name that has no file, for a check to find.
            name, _ = images.get(number, (f"image {number}", None))
            people.setdefault(name, []).append(annotation)
    made = samples(index, people, _points, notes)
    return [replace(one, read_points=_at_its_size(one, sizes.get(one.name), index)) for one in made]


def _listed(image: dict[str, Any]) -> tuple[str, tuple[int, int] | None]:
    """The name of an image and the (width, height) that was annotated, where the file says so."""
    name, width, height = image["file_name"], image.get("width"), image.get("height")
    if not isinstance(name, str):
        raise TypeError(name)
    if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0:
        return plain(name), (width, height)
    return plain(name), None


def _at_its_size(sample: Sample, size: tuple[int, int] | None, index: Path) -> Callable[[], Points]:
    """Points of a picture that was made larger or smaller follow it; another shape is not trusted, many tools err."""
    return to_picture(sample.read_points, sample.image, size, index, strict=False)


def _refuse_twice(index: Path, names: Sequence[str]) -> None:
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise DataError(f"{index} lists the image {twice} twice: keep one of them.")


def samples(index: Path, people: dict[str, list[Any]], read: Any, notes: tuple[str, ...] = ()) -> list[Sample]:
    """In the order of the file; what is to be said of the whole file is said of its first picture."""
    pictures = Pictures(index)
    made: list[Sample] = []
    taken: dict[Path, str] = {}
    for name, rows in people.items():
        path, found = pictures.find(name)
        if taken.setdefault(path, name) != name:
            raise DataError(f"{index} lists the picture {path.name} as {taken[path]} and as {name}: use one name.")
        made.append(Sample(name, path, partial(read, index, rows), notes=(*notes, *found)))
        notes = ()
    return made


def _points(index: Path, annotations: Sequence[dict[str, Any]]) -> Points:
    try:
        points = [_point(annotation) for annotation in annotations]
    except (KeyError, TypeError, ValueError, IndexError):
        raise DataError(f"{index} has an annotation without usable keypoints, point, bbox or segmentation.") from None
    return as_points(np.array(points, dtype=np.float64).reshape(-1, 2), 0.0, index)


def _point(annotation: dict[str, Any]) -> tuple[float, float]:
    """The first labelled keypoint (a body's first one is its nose), the point, or the centre of the box."""
    keypoints = annotation.get("keypoints") or []
    for x, y, visibility in zip(keypoints[::3], keypoints[1::3], keypoints[2::3], strict=True):
        if visibility:
            return float(x) + ZERO_BASED, float(y) + ZERO_BASED
    if "point" in annotation:
        x, y = annotation["point"]
        return float(x) + ZERO_BASED, float(y) + ZERO_BASED
    if not annotation.get("bbox") and annotation.get("segmentation"):
        outline = np.array(annotation["segmentation"][0], dtype=np.float64).reshape(-1, 2)
        centre = (outline.min(axis=0) + outline.max(axis=0)) / 2
        return float(centre[0]), float(centre[1])
    x, y, width, height = annotation["bbox"]
    return float(x) + float(width) / 2, float(y) + float(height) / 2
