"""What is wrong with a data set, and what is in it. Nothing here stops at a bad file: it is listed.

One image's pixels and points are held at a time, so memory does not grow with the data set.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uepnet.model.errors import DataError, ImageError
from uepnet.model.file_names import IMAGE_SUFFIXES
from uepnet.model.image import load_image
from uepnet.training.data.dataset import LEAST, Sample, left_out, load, released
from uepnet.training.data.near_copies import ALIKE, Named, Print, nearest, print_of, share_alike, spread_over
from uepnet.training.data.plausible import Labels, better_way, units
from uepnet.training.data.sample import MAX_PIXELS, Points, upright_size
from uepnet.training.data.targets import inside

# Broken: training or evaluation would refuse this image, or learn nonsense from it.
BROKEN = {
    "missing_image": "annotated, but the image is missing",
    "unreadable_image": "image cannot be decoded",
    "missing_annotation": "image without its annotation",
    "unreadable_annotation": "annotation cannot be read",
    "misfit": "most points lie outside the frame",
    "wrong_units": "coordinates are fractions, percent or swapped",
    "nobody": "nobody is marked in any picture",
    "too_few": "too few pictures to train on",
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
    "turned": "labels fit the pictures better when mirrored, swapped or scaled",
    "near_copies": "nearly the same picture in another split",
    "video_frames": "consecutive frames of a video",
    "few_pictures": "too few pictures to fine-tune on",
    "assumed": "the reader assumed something: please confirm",
}


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str  # a key of BROKEN or NOTED
    item: str  # the sample's name, or a file
    text: str

    @property
    def broken(self) -> bool:
        return self.kind in BROKEN


FEW = 10  # pictures: fewer cannot be fine-tuned on
TRAINED_ON = ("train", "usable", "fit")  # splits
LOOKED_AT = 8  # pictures that a model counts, to see whether the labels fit
MANY_ALIKE = 0.5  # share of pictures that resemble the one before: frames of a video
Look = Callable[[NDArray[np.uint8]], NDArray[np.float64]]  # a picture -> people per cell


@dataclass
class _Seen:
    """What is kept of the pictures: digests and small prints to find copies, and points with sizes."""

    digests: dict[bytes, str] = field(default_factory=dict)
    prints: list[Print] = field(default_factory=list)
    labels: list[Labels] = field(default_factory=list)
    others: dict[str, list[Named]] = field(default_factory=dict)  # the pictures of other splits


@dataclass
class Report:
    """Counts of people per image, sizes and problems of a split."""

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
        """How many pictures are broken, each counted once: all of them if their labels are in a wrong unit."""
        if any(finding.kind == "wrong_units" for finding in self.findings):
            return self.images
        whole = _whole(self.split)
        return len({finding.item for finding in self.findings if finding.broken and finding.item != whole})

    @property
    def usable(self) -> bool:
        return not any(finding.broken for finding in self.findings)

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
    look: Look | None = None,
) -> Report:
    """Look at every file of a split, and at the other splits' pictures for copies of its own.

    `look` counts a few pictures with a model, to see whether the labels fit what is in them.
    """
    samples = load(dataset, root, split, fold)
    ours = {sample.image for sample in samples}
    everything = released(dataset, root)
    others = [(name, sample) for name, found in everything.items() for sample in found if sample.image not in ours]
    total = len(samples) + len(others)
    report = Report(dataset, split, images=len(samples))
    seen = _Seen()
    for done, sample in enumerate(samples, start=1):
        digest = _look_at(sample, report, seen)
        if digest in seen.digests:
            twin = seen.digests[digest]
            report.findings.append(Finding("duplicate_image", sample.name, f"is the same picture as {twin}"))
        elif digest is not None:
            seen.digests[digest] = sample.name
        watch(done, total)
    for done, (name, sample) in enumerate(others, start=len(samples) + 1):
        _compare(sample, name, report, seen)
        watch(done, total)
    report.findings.extend(_unpaired(samples, [sample for found in everything.values() for sample in found]))
    report.findings.extend(_of_the_whole(samples, report, seen, look, "val" in everything))
    return report


def _whole(split: str) -> str:
    """What a finding names that is not about one picture."""
    return f"split {split}"


def _of_the_whole(
    samples: Sequence[Sample], report: Report, seen: _Seen, look: Look | None, own_val: bool
) -> Iterator[Finding]:
    """What only all labels and pictures together show."""
    name = _whole(report.split)
    wrong = units(seen.labels)
    if wrong:
        yield Finding("wrong_units", name, f"x and y {wrong}")
    elif look is not None and (way := _better_way(samples, seen, look)):
        yield Finding("turned", name, f"labels fit what a model sees in the pictures far better when they are {way}")
    if report.split in TRAINED_ON and seen.labels and not any(len(labels.points) for labels in seen.labels):
        yield Finding("nobody", name, f"has nobody marked in any of its {report.images} pictures")
    if report.images < LEAST and report.split in TRAINED_ON and not own_val:
        text = f"has {report.images} pictures; training needs {LEAST} to hold one back, fine-tuning {FEW}"
        yield Finding("too_few", name, text)
    elif report.images < FEW:
        yield Finding("few_pictures", name, f"has {report.images} pictures; fine-tuning needs {FEW}, and 50 are better")
    ours = [(labels.name, look) for labels, look in zip(seen.labels, seen.prints, strict=True)]
    for split, others in seen.others.items():
        pair = spread_over(ours, others)
        if pair is not None:
            text = f"and {name} share the frames of one video: {pair[0]} is a neighbour of {pair[1]}, and like it"
            yield Finding("near_copies", _whole(split), text)
    alike = share_alike(seen.prints)
    if len(seen.prints) >= FEW and alike > MANY_ALIKE:
        text = f"{alike:.0%} of the pictures hardly differ from the one before: label fewer of them, from more hours"
        yield Finding("video_frames", name, text)


def _better_way(samples: Sequence[Sample], seen: _Seen, look: Look) -> str | None:
    by_name = {sample.name: sample for sample in samples}
    occupied = [labels for labels in seen.labels if len(labels.points)]
    chosen = occupied[:: max(1, -(-len(occupied) // LOOKED_AT))]
    return better_way(chosen, [look(by_name[labels.name].load_image()) for labels in chosen])


def _compare(sample: Sample, split: str, report: Report, seen: _Seen) -> None:
    """A picture of another split: is it, or does it resemble, one of ours?"""
    try:
        pixels = load_image(sample.image, max_pixels=MAX_PIXELS)
    except ImageError:
        return
    twin = seen.digests.get(_pixel_digest(pixels))
    if twin is not None:
        known = "; training leaves it out" if twin in left_out(report.dataset) else ""
        report.findings.append(Finding("shared_image", twin, f"is {sample.name} of the {split} split{known}"))
    elif seen.prints:
        look = print_of(pixels)
        seen.others.setdefault(split, []).append((sample.name, look))
        ((index, alike),) = nearest([look], seen.prints)
        if alike >= ALIKE:
            text = f"of the {split} split is nearly the same picture as {seen.labels[index].name}: neighbouring frames?"
            report.findings.append(Finding("near_copies", sample.name, text))


def _look_at(sample: Sample, report: Report, seen: _Seen) -> bytes | None:
    """Read one image and its annotation into the report; the digest of its pixels where it has any."""
    report.findings.extend(Finding("assumed", sample.name, note) for note in sample.notes)
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
    seen.prints.append(print_of(pixels))
    seen.labels.append(Labels(sample.name, np.zeros((0, 2)) if points is None else points, (width, height)))
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
        if path.suffix.lower() in IMAGE_SUFFIXES and path.resolve() not in known:
            yield Finding("unlisted_image", str(path), "is named by no annotation and is not used")
    kinds = {(path.parent, path.suffix) for sample in samples for path in sample.annotations}
    for path in _files({folder for folder, _ in kinds}):
        if (path.parent, path.suffix) in kinds and path.resolve() not in known:
            yield Finding("lone_annotation", str(path), "has no image")


def _files(folders: Iterable[Path]) -> list[Path]:
    return sorted(path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file())


def refuse_broken(samples: Sequence[Sample]) -> None:
    """What `check` calls broken is refused before training starts. Every picture is decoded: a truncated one would
    end the training at the step that meets it."""
    report = Report("", "")
    labels = []
    for sample in samples:
        points = _points(sample, report)
        pixels = _pixels(sample, report)
        if points is not None and pixels is not None:
            height, width = pixels.shape[:2]
            labels.append(Labels(sample.name, points, (width, height)))
            _check_frame(sample, points, width, height, report)
    wrong = units(labels)
    if wrong:
        raise DataError(f"The labels' x and y {wrong}.")
    if samples and len(labels) == len(samples) and not any(len(one.points) for one in labels):
        raise DataError(
            f"None of the {len(samples)} pictures has a person marked in it: training needs some that have."
        )
    broken = [finding for finding in report.findings if finding.broken]
    if broken:
        first = broken[0]
        text = first.text if first.text.endswith(".") else f"{first.item} {first.text}."
        if first.kind == "unreadable_image":
            text = f"{first.item}: {text}"
        more = f" {report.broken} of {len(samples)} pictures are broken: `uepnet data check` lists them."
        raise DataError(text + (more if report.broken > 1 else ""))
