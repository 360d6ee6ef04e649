"""Annotation files -> points, in continuous coordinates: the centre of pixel (i, j) is (i + 0.5, j + 0.5)."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from uepnet.model.errors import DataError
from uepnet.training.matlab import read_mat
from uepnet.training.sample import Points

# What to add to what is written, so that pixel centres lie at +0.5.
MATLAB = -0.5  # 1-based indices of pixels
ZERO_BASED = 0.5  # 0-based indices of pixels
CONTINUOUS = 0.0  # lengths from the image's upper left corner


def nobody() -> Points:
    return np.zeros((0, 2))


def as_points(values: Any, origin: float, source: Path) -> Points:
    """Rows whose first two columns are x, y; `origin` moves them so that pixel centres lie at +0.5."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError):
        array = np.full((1, 1), np.nan)
    if array.size == 0:
        return nobody()
    if array.ndim != 2 or array.shape[1] < 2 or not np.isfinite(array[:, :2]).all():
        raise DataError(f"The annotation {source} does not hold rows of x and y.")
    return array[:, :2] + origin


def image_info(path: Path) -> Points:
    """ShanghaiTech."""
    try:
        return as_points(read_mat(path)["image_info"][0, 0][0, 0][0], MATLAB, path)
    except (LookupError, TypeError):
        raise DataError(f"The annotation {path} has no image_info with points.") from None


def mat_points(path: Path, variable: str) -> Points:
    content = read_mat(path)
    if variable not in content:
        raise DataError(f"The annotation {path} has no {variable}.")
    return as_points(content[variable], MATLAB, path)


def text_points(path: Path, origin: float) -> Points:
    """Lines that start with `x y`, separated by blanks or commas; an empty file is an image with nobody."""
    lines = [line.replace(",", " ").split() for line in read_text(path).splitlines()]
    try:
        rows = [(float(line[0]), float(line[1])) for line in lines if line]
    except (ValueError, IndexError):
        raise DataError(f"The annotation {path} does not hold lines of x and y.") from None
    return as_points(rows, origin, path)


def json_points(path: Path) -> Points:
    """NWPU-Crowd: `points`, pairs of x, y."""
    content = read_json(path)
    if not isinstance(content, dict) or "points" not in content:
        raise DataError(f"The annotation {path} has no points.")
    return as_points(content["points"], ZERO_BASED, path)


@lru_cache(maxsize=1)  # one file holds the points of 2,000 frames
def _mall_frames(path: Path) -> tuple[Points, ...]:
    try:
        frames = read_mat(path)["frame"]
        return tuple(as_points(frame["loc"][0, 0], MATLAB, path) for frame in frames[0])
    except (LookupError, ValueError, TypeError):
        raise DataError(f"The annotation {path} has no frames with points.") from None


def mall_points(path: Path, number: int) -> Points:
    """Frame `number`, from 1, of mall_gt.mat."""
    frames = _mall_frames(path)
    if not 1 <= number <= len(frames):
        raise DataError(f"The annotation {path} has {len(frames)} frames, but not number {number}.")
    return frames[number - 1]


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"The annotation {path} is missing.") from None
    except (OSError, UnicodeDecodeError):
        raise DataError(f"The annotation {path} is not readable text.") from None


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError):
        raise DataError(f"The annotation {path} is not valid JSON.") from None
