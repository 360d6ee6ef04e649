"""What is wrong with a data set, and what is in it. Nothing here stops at a bad file: it is listed.

One image's pixels and points are held at a time, so memory does not grow with the data set.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uepnet.model.errors import DataError, ImageError
from uepnet.model.image import load_image
from uepnet.training.dataset import LEFT_OUT, Sample, load, released
from uepnet.training.layouts import IMAGE_KINDS
from uepnet.training.sample import MAX_PIXELS, Points, upright_size
from uepnet.training.targets import inside

# Broken: training or evaluation would refuse this image, or learn nonsense from it.
BROKEN = {
    "missing_image": "annotated, but the image is missing",
    "unreadable_image": "image cannot be decoded",
    "missing_annotation": "image without its annotation",
    "unreadable_annotation": "annotation cannot be read",
    "misfit": "most points lie outside the frame",
}
# Noted: it can be used as it is, but somebody should know.
NOTED = {
    "points_outside": "some points lie outside the frame",
    "duplicate_points": "points marked twice",
    "empty": "nobody annotated",
    "duplicate_image": "the same picture twice in this split",
    "shared_image": "the same picture in another split",
    "unlisted_image": "picture in the folder that no annotation names",
    "lone_annotation": "annotation without an image",
}


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str  # a key of BROKEN or NOTED
    item: str  # the sample's name, or a file
    text: str

    @property
    def broken(self) -> bool:
        return self.kind in BROKEN


@dataclass
class Report:
    """What a split holds: counts of people by image, sizes, and what is wrong."""

    dataset: str
    split: str
    images: int = 0
    counts: list[int] = field(default_factory=list)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    points_outside: int = 0
    duplicate_points: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def broken(self) -> int:
        return len({finding.item for finding in self.findings if finding.broken})

    def as_json(self) -> dict[str, object]:
        counts = np.array(self.counts or [0])
        return {
            "dataset": self.dataset,
            "split": self.split,
            "images": self.images,
            "broken": self.broken,
            "people": int(counts.sum()),
            "count": {
                "min": int(counts.min()),
                "median": float(np.median(counts)),
                "mean": float(counts.mean()),
                "max": int(counts.max()),
            },
            "sizes": {f"{width}x{height}": images for (width, height), images in self.sizes.most_common()},
            "points_outside": self.points_outside,
            "duplicate_points": self.duplicate_points,
            "findings": [
                {"kind": finding.kind, "item": finding.item, "text": finding.text, "broken": finding.broken}
                for finding in self.findings
            ],
        }


def check(
    dataset: str,
    root: Path,
    split: str = "train",
    fold: int | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Look at every file of a split, and at the other splits' pictures for copies of its own."""
    samples = load(dataset, root, split, fold)
    ours = {sample.image for sample in samples}
    everything = released(dataset, root)
    others = [(name, sample) for name, found in everything.items() for sample in found if sample.image not in ours]
    total = len(samples) + len(others)
    report = Report(dataset, split, images=len(samples))
    seen: dict[bytes, str] = {}
    for done, sample in enumerate(samples, start=1):
        digest = _look_at(sample, report)
        if digest in seen:
            report.findings.append(Finding("duplicate_image", sample.name, f"is the same picture as {seen[digest]}"))
        elif digest is not None:
            seen[digest] = sample.name
        watch(done, total)
    for done, (name, sample) in enumerate(others, start=len(samples) + 1):
        twin = seen.get(_digest(sample) or b"")
        if twin is not None:
            known = "; training leaves it out" if twin in LEFT_OUT.get(dataset, ()) else ""
            report.findings.append(Finding("shared_image", twin, f"is {sample.name} of the {name} split{known}"))
        watch(done, total)
    report.findings.extend(_unpaired(samples, [sample for found in everything.values() for sample in found]))
    return report


def _look_at(sample: Sample, report: Report) -> bytes | None:
    """Read one image and its annotation into the report; the digest of its pixels where it has any."""
    points = _points(sample, report)
    pixels = _pixels(sample, report)
    if points is not None:
        report.counts.append(len(points))
        if len(points) == 0:
            report.findings.append(Finding("empty", sample.name, "has nobody annotated"))
        repeated = len(points) - len(np.unique(points, axis=0))
        if repeated:
            report.duplicate_points += repeated
            report.findings.append(Finding("duplicate_points", sample.name, f"has {repeated} points marked twice"))
    if pixels is None:
        return None
    height, width = pixels.shape[:2]
    report.sizes[width, height] += 1
    if points is not None:
        _check_frame(sample, points, width, height, report)
    return _pixel_digest(pixels)


def _points(sample: Sample, report: Report) -> Points | None:
    try:
        return sample.read_points()  # not sample.points, which would keep them
    except DataError as error:
        absent = any(not path.exists() for path in sample.annotations)
        kind = "missing_annotation" if absent else "unreadable_annotation"
        report.findings.append(Finding(kind, sample.name, str(error)))
        return None


def _pixels(sample: Sample, report: Report) -> NDArray[np.uint8] | None:
    if not sample.image.is_file():
        report.findings.append(Finding("missing_image", sample.name, f"The image {sample.image} is missing."))
        return None
    try:
        return load_image(sample.image, max_pixels=MAX_PIXELS)
    except ImageError as error:
        report.findings.append(Finding("unreadable_image", sample.name, str(error)))
        return None


def _check_frame(sample: Sample, points: Points, width: int, height: int, report: Report) -> None:
    """Points belong to the upright image; some tools annotate it as it is stored."""
    outside = len(points) - int(inside(points, width, height).sum())
    if not outside:
        return
    report.points_outside += outside
    kind = "misfit" if outside > len(points) / 2 else "points_outside"
    text = f"has {outside} of {len(points)} points outside its frame of {width} x {height}"
    if upright_size(sample.image)[2] and inside(points, height, width).all():
        kind = "misfit"
        text += (
            f"; they fit {height} x {width}, the frame as stored: annotate it upright or remove its EXIF orientation"
        )
    report.findings.append(Finding(kind, sample.name, text))


def _digest(sample: Sample) -> bytes | None:
    try:
        return _pixel_digest(load_image(sample.image, max_pixels=MAX_PIXELS))
    except ImageError:
        return None


def _pixel_digest(pixels: NDArray[np.uint8]) -> bytes:
    """Of the pixels, so that copies with other metadata are found too."""
    digest = hashlib.sha256(repr(pixels.shape).encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


def _unpaired(samples: Iterable[Sample], everything: Iterable[Sample]) -> Iterator[Finding]:
    """Files beside those of this split that belong to no sample of any split."""
    known = {path.resolve() for sample in everything for path in (sample.image, *sample.annotations)}
    folders = {sample.image.parent for sample in samples}
    for path in _files(folders):
        if path.suffix.lower() in IMAGE_KINDS and path.resolve() not in known:
            yield Finding("unlisted_image", str(path), "is named by no annotation and is not used")
    kinds = {(path.parent, path.suffix) for sample in samples for path in sample.annotations}
    for path in _files({folder for folder, _ in kinds}):
        if (path.parent, path.suffix) in kinds and path.resolve() not in known:
            yield Finding("lone_annotation", str(path), "has no image")


def _files(folders: Iterable[Path]) -> list[Path]:
    return sorted(path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file())
