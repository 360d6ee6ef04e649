"""CVAT for images 1.1 (XML): points, boxes, ellipses, polygons, skeletons and masks; the centre of each is a person.

The file is read as a stream by expat with bounds: a document type, and with it every entity, is refused, so that no
file can name other files or grow in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.parsers import expat

import numpy as np

from uepnet.model.errors import DataError
from uepnet.training.data import labels as labels_of
from uepnet.training.data.annotations import CONTINUOUS, PROPOSED, UNCORRECTED, as_points
from uepnet.training.data.coco import samples
from uepnet.training.data.listing import index_file, plain
from uepnet.training.data.sample import Points, Sample
from uepnet.training.data.scaling import to_picture

MOST_BYTES = 1 << 30
MOST_DEPTH = 32
SHAPES = ("points", "box", "ellipse", "polygon", "polyline", "mask", "skeleton", "cuboid")
CENTRES = ("polygon", "polyline")  # one person each; every coordinate of `points` is a person
Attributes = dict[str, str]


class _RefusedError(Exception):
    """Raised inside expat's callbacks; its text is a whole sentence without the file's name."""


@dataclass
class Picture:
    """An <image> element: its name, the size that CVAT saw, and its shapes as (kind, attributes)."""

    name: str
    size: tuple[int, int] | None
    shapes: list[tuple[str, Attributes]] = field(default_factory=list)


def cvat(root: Path, split: str, labels: frozenset[str] = frozenset()) -> list[Sample]:
    """Every listed image is a sample; one without shapes has no people."""
    index = index_file(root, split, ("*.xml",))
    if index is None:
        return []
    pictures, proposed = read(index)
    shapes = [shape for picture in pictures for shape in picture.shapes]
    if pictures and not shapes:
        raise DataError(f"{index} lists {len(pictures)} pictures and not one shape: is the task annotated and saved?")
    used = labels_of.count(label(attributes) for _, attributes in shapes)
    counted, notes = labels_of.choose(used, labels, "cvat", index)
    notes = (*notes, UNCORRECTED) if proposed else notes
    people = {
        picture.name: [(picture, shape) for shape in picture.shapes if label(shape[1]) in counted]
        for picture in pictures
    }
    made = samples(index, people, _points, notes)
    return [_with_size(sample, index, picture) for sample, picture in zip(made, pictures, strict=True)]


def label(attributes: Attributes) -> str:
    return attributes.get("label", "")


def read(path: Path) -> tuple[list[Picture], bool]:
    """The images of the file, in its order, and whether a model proposed its shapes."""
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = reader.doctype
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than 1 GiB: export the task in parts.")
        with path.open("rb") as file:
            parser.ParseFile(file)
    except FileNotFoundError:
        raise DataError(f"The annotation {path} is missing.") from None
    except OSError as error:
        raise DataError(f"The annotation {path} cannot be read: {error.strerror}.") from None
    except expat.ExpatError as error:
        message = expat.errors.messages[error.code]
        raise DataError(f"{path} is not valid XML (line {error.lineno}: {message}{_why(path, message)}).") from None
    except LookupError as error:
        raise DataError(f"{path} names an encoding that is not known ({error}): save it as UTF-8.") from None
    except _RefusedError as error:
        raise DataError(f"{path} {error}") from None
    if reader.tracks and not reader.pictures:
        raise DataError(f"{path} is `CVAT for video`: export the task as `CVAT for images 1.1`.")
    if reader.first != "annotations":
        raise DataError(f"{path} is not `CVAT for images 1.1`: its first element is {reader.first}, not annotations.")
    return reader.pictures, reader.proposed


def _why(path: Path, message: str) -> str:
    """XML that does not say otherwise is UTF-8; a text in another encoding looks broken."""
    if message != expat.errors.XML_ERROR_INVALID_TOKEN:
        return ""
    try:
        path.read_text("utf-8")
    except UnicodeDecodeError:
        return ", its text is not UTF-8 as it should be: save it as UTF-8"
    return ""


class _Reader:
    """Expat's callbacks: collects images and the shapes directly below them."""

    def __init__(self) -> None:
        self.pictures: list[Picture] = []
        self.tracks = 0
        self.first = ""
        self.proposed = False
        self._names: set[str] = set()
        self._depth = 0
        self._image_depth = 0

    def start(self, tag: str, attributes: Attributes) -> None:
        self._depth += 1
        self.first = self.first or tag
        if self._depth > MOST_DEPTH:
            raise _RefusedError(f"nests its elements more than {MOST_DEPTH} deep, as no annotation does.")
        self.proposed |= tag == PROPOSED
        if tag == "track":
            self.tracks += 1
        elif tag == "image":
            self._open(attributes)
        elif self._image_depth and self._depth == self._image_depth + 1 and tag in SHAPES:
            self.pictures[-1].shapes.append((tag, dict(attributes)))
        elif self._image_depth and tag == "points" and self.pictures[-1].shapes[-1:]:
            kind, parent = self.pictures[-1].shapes[-1]
            if kind == "skeleton" and attributes.get("outside") != "1":
                parent.setdefault("points", attributes.get("points", ""))  # a skeleton's first point, as in COCO

    def end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "image":
            self._image_depth = 0

    def doctype(self, *_: object) -> None:
        raise _RefusedError("has a document type declaration, which no CVAT file has: it is refused.")

    def _open(self, attributes: Attributes) -> None:
        name = plain(attributes.get("name", ""))
        if name in ("", "."):
            raise _RefusedError("has an image without a name.")
        if name in self._names:
            raise _RefusedError(f"lists the image {name} twice.")
        self._names.add(name)
        try:
            width, height = int(attributes["width"]), int(attributes["height"])
        except (KeyError, ValueError):
            width = height = 0
        self.pictures.append(Picture(name, (width, height) if min(width, height) > 0 else None))
        self._image_depth = self._depth


def _with_size(sample: Sample, index: Path, picture: Picture) -> Sample:
    """Points of a picture that was made larger or smaller after it was annotated follow it."""
    return replace(sample, read_points=to_picture(sample.read_points, sample.image, picture.size, index))


def _points(index: Path, shapes: Sequence[tuple[Picture, tuple[str, Attributes]]]) -> Points:
    rows: list[tuple[float, float]] = []
    for picture, (kind, attributes) in shapes:
        try:
            rows += _people(kind, attributes)
        except (KeyError, ValueError, IndexError):
            raise DataError(f"{index}: {picture.name} has a <{kind}> without usable coordinates.") from None
    return as_points(np.array(rows, dtype=np.float64).reshape(-1, 2), CONTINUOUS, index)


def _people(kind: str, attributes: Attributes) -> list[tuple[float, float]]:
    """The people that a shape marks: each of a <points>'s coordinates, the centre of anything else."""
    if kind == "box":
        left, top, right, bottom = (float(attributes[name]) for name in ("xtl", "ytl", "xbr", "ybr"))
        return [((left + right) / 2, (top + bottom) / 2)]
    if kind == "ellipse":
        return [(float(attributes["cx"]), float(attributes["cy"]))]
    if kind == "mask":
        left, top, width, height = (float(attributes[name]) for name in ("left", "top", "width", "height"))
        return [(left + width / 2, top + height / 2)]
    if kind == "cuboid":
        corners = [value for name, value in attributes.items() if name[:2] in ("xt", "xb", "yt", "yb")]
        xs, ys = corners[::2], corners[1::2]
        return [_centre([(float(x), float(y)) for x, y in zip(xs, ys, strict=True)])]
    pairs = [tuple(map(float, pair.split(","))) for pair in attributes["points"].split(";")]
    marked = [(x, y) for x, y in pairs]
    return [_centre(marked)] if kind in CENTRES else marked


def _centre(corners: Sequence[tuple[float, float]]) -> tuple[float, float]:
    xs, ys = zip(*corners, strict=True)
    return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2
