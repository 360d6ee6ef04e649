"""The layouts of published data sets: a folder and a split -> samples.

A reader opens no annotation: it pairs files by name, so that what is wrong with one shows when it is used, and a
check can list all that is wrong.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from uepnet.model.errors import DataError
from uepnet.model.file_names import IMAGE_SUFFIXES, natural
from uepnet.training.data.annotations import (
    MATLAB,
    ZERO_BASED,
    as_points,
    image_info,
    json_points,
    mall_points,
    mat_points,
    read_text,
    text_points,
)
from uepnet.training.data.matlab import read_mat
from uepnet.training.data.region import Mask, in_mask, polygon_mask
from uepnet.training.data.sample import ADAPTIVE, Points, Sample, upright_size
from uepnet.training.data.targets import Kernel


def images_in(folder: Path, pattern: str = "*") -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"The folder {folder} is missing.")
    found = (path for path in folder.glob(pattern) if path.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(found, key=lambda path: natural(path.name))


def first_folder(root: Path, *names: str) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def shanghaitech(part: str) -> Callable[[Path, str], list[Sample]]:
    """part_A or part_B, with or without `_final`; ground_truth or ground-truth."""
    kernel = Kernel(fixed=15.0) if part == "B" else ADAPTIVE

    def read(root: Path, split: str) -> list[Sample]:
        names = f"part_{part}_final", f"part_{part}"
        base = first_folder(root, *names)
        if base is None:
            raise DataError(f"{root} holds neither part_{part}_final nor part_{part}.")
        # Copies put together from two sources may have a split under either name.
        data = first_folder(root, *(f"{name}/{split}_data" for name in names)) or base / f"{split}_data"
        truth = first_folder(data, "ground_truth", "ground-truth") or data / "ground_truth"
        return [
            _paired(image, truth / f"GT_{image.stem}.mat", image_info, kernel) for image in images_in(data / "images")
        ]

    return read


def _paired(image: Path, annotation: Path, read: Callable[[Path], Points], kernel: Kernel = ADAPTIVE) -> Sample:
    return Sample(image.name, image, partial(read, annotation), kernel, annotations=(annotation,))


def ucf_cc_50(root: Path, split: str) -> list[Sample]:
    """n.jpg, n_ann.mat: all fifty images as `train`; a test split is a fold's."""
    if split == "test":
        raise DataError("UCF_CC_50 has no test split of its own: choose a fold, 1 to 5.")
    base = first_folder(root, "UCF_CC_50") or root
    return _ann_points(base)


def fold_of(sample: Sample) -> int:
    """The fold that tests this image of UCF_CC_50: images 1-10 fold 1, 11-20 fold 2, ... 41-50 fold 5."""
    stem = sample.image.stem
    if not stem.isdecimal() or not 1 <= int(stem) <= 50:
        raise DataError(f"{sample.image} is no image of UCF_CC_50: they are called 1.jpg to 50.jpg.")
    return (int(stem) - 1) // 10 + 1


def ucf_qnrf(root: Path, split: str) -> list[Sample]:
    """Train/img_0001.jpg, Train/img_0001_ann.mat; Test/..."""
    base = first_folder(root, "UCF-QNRF_ECCV18", "UCF-QNRF") or root
    return _ann_points(first_folder(base, split.title(), split) or base / split.title())


def _ann_points(folder: Path) -> list[Sample]:
    read = partial(mat_points, variable="annPoints")
    return [_paired(image, folder / f"{image.stem}_ann.mat", read) for image in images_in(folder)]


def worldexpo10(root: Path, split: str) -> list[Sample]:
    """train_frame/*.jpg (test_frame/<scene>/*.jpg), train_label/<scene>/<frame>.mat and roi.mat.

    A frame's name starts with the six digits of its scene.
    """
    base = first_folder(root, "WorldExpo10", "WorldExpo") or root
    samples = []
    for image in images_in(base / f"{split}_frame", "**/*"):
        scene = image.name[:6]
        folder = base / f"{split}_label" / scene
        label, roi = folder / f"{image.stem}.mat", folder / "roi.mat"
        region = partial(_region, roi, image)
        samples.append(
            Sample(
                image.name,
                image,
                partial(_points_in_region, label, region),
                Kernel(fixed=5.0),
                region,
                scene,
                (label, roi),
            )
        )
    return samples


def _points_in_region(label: Path, region: Callable[[], Mask]) -> Points:
    points = mat_points(label, "point_position")
    return points[in_mask(points, region())]


def _region(roi: Path, image: Path) -> Mask:
    width, height, _ = upright_size(image)
    return _scene_mask(roi, width, height)


@lru_cache(maxsize=8)  # frames of a scene share their region; a mask takes 0.4 MB
def _scene_mask(roi: Path, width: int, height: int) -> Mask:
    content = read_mat(roi)
    try:
        columns = (content[f"maskVertices{axis}Coordinates"].reshape(-1, 1) for axis in "XY")
        corners = [[float(x[0]), float(y[0])] for x, y in zip(*columns, strict=True)]
    except (LookupError, ValueError, TypeError, AttributeError):
        raise DataError(f"{roi} has no mask vertices.") from None
    outline = as_points(corners, MATLAB, roi)
    if len(outline) < 3:
        raise DataError(f"{roi} has a region of {len(outline)} corners; it needs three at least.")
    mask = polygon_mask([(float(x), float(y)) for x, y in outline], width, height)
    mask.setflags(write=False)  # it is shared
    return mask


def jhu_crowd(root: Path, split: str) -> list[Sample]:
    """{train,val,test}/images/0000.jpg, gt/0000.txt with lines `x y w h occlusion blur`; x, y is the head's centre."""
    base = (first_folder(root, "jhu_crowd_v2.0", "JHU-CROWD++") or root) / split
    read = partial(text_points, origin=ZERO_BASED)
    return [_paired(image, base / "gt" / f"{image.stem}.txt", read) for image in images_in(base / "images")]


def nwpu(root: Path, split: str) -> list[Sample]:
    """images/0001.jpg, jsons/0001.json or mats/0001.mat; train.txt, val.txt, test.txt start each line with a number."""
    base = first_folder(root, "NWPU-Crowd") or root
    jsons = (base / "jsons").is_dir()
    samples = []
    for line in read_text(base / f"{split}.txt").splitlines():
        if not line.split():
            continue
        number = Path(line.split()[0]).stem
        image = base / "images" / f"{number}.jpg"
        if jsons:
            samples.append(_paired(image, base / "jsons" / f"{number}.json", json_points))
        else:
            read = partial(mat_points, variable="annPoints")
            samples.append(_paired(image, base / "mats" / f"{number}.mat", read))
    return samples


MALL_TRAIN = 800  # the published protocol: frames 1-800 train, 801-2000 test


def mall(root: Path, split: str) -> list[Sample]:
    """frames/seq_000001.jpg with points/seq_000001.txt (`x y` a line) or with mall_gt.mat, as released."""
    base = first_folder(root, "mall_dataset") or root
    truth = base / "mall_gt.mat"
    if not truth.is_file() and not (base / "points").is_dir():
        raise DataError(f"{base} holds neither mall_gt.mat nor a folder of points.")
    samples = []
    for image in images_in(base / "frames"):
        number = int((re.findall(r"\d+", image.stem) or ["0"])[-1])
        if (number <= MALL_TRAIN) != (split == "train"):
            continue
        if truth.is_file():
            samples.append(Sample(image.name, image, partial(mall_points, truth, number)))
        else:
            read = partial(text_points, origin=MATLAB)
            samples.append(_paired(image, base / "points" / f"{image.stem}.txt", read))
    if not samples:
        raise DataError(f"{base / 'frames'} holds no frames of mall's {split} split (train is 1-800, test 801-2000).")
    return samples
