"""One reader per data set layout -> samples: an image's path and its points.

Points are continuous (x, y): the centre of pixel (i, j) is (i + 0.5, j + 0.5). The annotated count is the number of
points, those outside the frame included.

Splits: `train` and `test` are the release's own. `val` and `calibration` are our fixed parts of train, `fit` is the
rest of it, which training sees.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.errors import DataError
from uepnet.training.targets import Kernel

Points = NDArray[np.float64]  # [people, 2]
SPLITS = ("train", "fit", "val", "calibration", "test")


@dataclass(frozen=True)
class Sample:
    """One annotated image. The annotation is read on first use."""

    name: str  # unique within its data set
    image: Path
    read_points: Callable[[], Points] = field(repr=False)
    kernel: Kernel = Kernel()
    region: Callable[[], NDArray[np.bool_]] | None = field(default=None, repr=False)  # [height, width], counted pixels
    scene: str = ""

    @cached_property
    def points(self) -> Points:
        return self.read_points()

    @cached_property
    def size(self) -> tuple[int, int]:
        """(width, height), upright, from the header."""
        try:
            with Image.open(self.image) as image:
                width, height = image.size
                turned = image.getexif().get(0x0112, 1) >= 5
        except (OSError, SyntaxError, ValueError):
            raise DataError(f"{self.image} cannot be read as an image.") from None
        return (height, width) if turned else (width, height)


def natural(path: Path) -> list[Any]:
    """Sorts IMG_2 before IMG_10."""
    return [int(part) if part.isdigit() else part.lower() for part in re.split(r"(\d+)", path.name)]


def read_mat(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content: dict[str, Any] = loadmat(str(path))
    except FileNotFoundError:
        raise DataError(f"The annotation {path} is missing.") from None
    except (MatReadError, ValueError, OSError, TypeError, NotImplementedError):
        raise DataError(f"The annotation {path} is not a readable MATLAB file.") from None
    return content


def as_points(values: Any, origin: float, source: Path) -> Points:
    """Rows whose first two columns are x, y; `origin` moves them so that pixel centres lie at +0.5."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return np.zeros((0, 2))
    if array.ndim != 2 or array.shape[1] < 2 or not np.isfinite(array[:, :2]).all():
        raise DataError(f"The annotation {source} does not hold rows of x and y.")
    return array[:, :2] + origin


MATLAB = -0.5  # 1-based pixel indices
ZERO_BASED = 0.5


def shanghaitech(part: str) -> Callable[[Path, str], list[Sample]]:
    """part_A or part_B, with or without `_final`; ground_truth or ground-truth."""
    kernel = Kernel(fixed=15.0) if part == "B" else Kernel()

    def read(root: Path, split: str) -> list[Sample]:
        folders = [root / f"part_{part}_final", root / f"part_{part}"]
        base = next((folder for folder in folders if folder.is_dir()), None)
        if base is None:
            raise DataError(f"{root} holds neither part_{part}_final nor part_{part}.")
        data = base / f"{split}_data"
        truths = [data / "ground_truth", data / "ground-truth"]
        truth = next((folder for folder in truths if folder.is_dir()), truths[0])
        return [
            Sample(image.name, image, lambda mat=truth / f"GT_{image.stem}.mat": _image_info(mat), kernel)
            for image in images_in(data / "images")
        ]

    return read


def _image_info(path: Path) -> Points:
    try:
        return as_points(read_mat(path)["image_info"][0, 0][0, 0][0], MATLAB, path)
    except (KeyError, IndexError, TypeError):
        raise DataError(f"The annotation {path} has no image_info with points.") from None


def images_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"The folder {folder} is missing.")
    kinds = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"}
    return sorted((path for path in folder.iterdir() if path.suffix.lower() in kinds), key=natural)


# Photographs of part A that stand in its test split too: never trained on.
LEFT_OUT = {"shanghaitech-a": frozenset(f"IMG_{number}.jpg" for number in (2, 60, 97, 121, 139, 154))}

READERS: dict[str, Callable[[Path, str], list[Sample]]] = {
    "shanghaitech-a": shanghaitech("A"),
    "shanghaitech-b": shanghaitech("B"),
}


def load(dataset: str, root: Path, split: str = "train") -> list[Sample]:
    """The samples of a split, in natural order."""
    reader = READERS.get(dataset)
    if reader is None:
        raise DataError(f"There is no data set called {dataset!r}: choose {', '.join(READERS)}.")
    if split not in SPLITS:
        raise DataError(f"There is no split called {split!r}: choose {', '.join(SPLITS)}.")
    if not root.is_dir():
        raise DataError(f"The folder {root} does not exist.")
    samples = reader(root, "test" if split == "test" else "train")
    if not samples:
        raise DataError(f"{root} holds no images for {dataset}, split {split}.")
    if split in ("train", "test"):
        return samples
    kept = [sample for sample in samples if sample.name not in LEFT_OUT.get(dataset, frozenset())]
    return [sample for sample, part in zip(kept, parts(kept), strict=True) if part == split]


def parts(samples: Sequence[Sample]) -> list[str]:
    """`fit`, `val` or `calibration` for each sample: fixed, stratified by count, the same on every machine.

    Ordered by count, every sixteen neighbours give one to val and two to calibration, picked by their names' hashes.
    """
    order = sorted(range(len(samples)), key=lambda index: (len(samples[index].points), samples[index].name))
    result = ["fit"] * len(samples)
    for start in range(0, len(order), 16):
        stratum = sorted(order[start : start + 16], key=lambda index: _digest(samples[index].name))
        shares = ["val", "calibration", "calibration"][: max(1, len(stratum) * 3 // 16)] if len(stratum) > 5 else []
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
    return [Sample(path.name, path, lambda: np.zeros((0, 2))) for path in found]


def total_people(samples: Iterable[Sample]) -> int:
    return sum(len(sample.points) for sample in samples)
