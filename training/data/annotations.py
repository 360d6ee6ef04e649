"""Annotation files -> points, in continuous coordinates: the centre of pixel (i, j) is (i + 0.5, j + 0.5)."""

import codecs
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from uepnet.model.errors import DataError
from uepnet.training.data.matlab import read_mat
from uepnet.training.data.sample import Points

# What to add to the written coordinates, so that pixel centres are at +0.5.
MATLAB = -0.5  # 1-based indices of pixels
ZERO_BASED = 0.5  # 0-based indices of pixels
CONTINUOUS = 0.0  # lengths from the image's upper left corner
PROPOSED = "proposed_by"  # the mark of a file of `uepnet prelabel`: its points are a model's, and nobody's labels yet
UNCORRECTED = (
    "has points that a model proposed (`uepnet prelabel`), in a file that no labelling tool has written since: "
    "correct them first, a model learns nothing from its own counts"
)
GUESSED = "is named in a file that is no Unicode text: it was read as Windows-1252 (Latin-1)"
MOST_DIGITS = 40  # of an integer
CONTROLS = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")  # bytes that do not occur in text


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
    """Lines that start with `x y`, separated by blanks or commas; an empty file is an image without people."""
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
    """The text of a file in UTF-8, UTF-16, UTF-32 or Windows-1252 (which holds Latin-1)."""
    return decoded(path)[0]


def decoded(path: Path) -> tuple[str, tuple[str, ...]]:
    """The text of a file, and a note where its encoding is a guess: no byte says that a text is Windows-1252."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"The annotation {path} is missing.") from None
    except OSError as error:
        raise DataError(f"The annotation {path} cannot be read: {error.strerror}.") from None
    encoding = _unicode(data)
    try:
        return data.decode(encoding), ()
    except UnicodeDecodeError:
        pass
    if encoding != "utf-8-sig":
        name = encoding[:6].upper()
        raise DataError(f"{path} starts like {name} but is not: save it as UTF-8.") from None
    if b"\0" in data or CONTROLS.search(data):
        raise DataError(f"{path} is not readable text (neither UTF-8 nor UTF-16 nor Windows-1252).") from None
    try:
        return data.decode("cp1252"), (GUESSED,)
    except UnicodeDecodeError:
        raise DataError(f"{path} is neither UTF-8, UTF-16 nor Windows-1252 text: save it as UTF-8.") from None


def _unicode(data: bytes) -> str:
    """The Unicode encoding that a file seems to have. Every other byte of Latin text in UTF-16 is zero."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):  # the first one starts like UTF-16's
        return "utf-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(data) % 2 == 0 and data[1::2].count(0) > len(data) / 4 and not data[::2].count(0):
        return "utf-16-le"
    if len(data) % 2 == 0 and data[::2].count(0) > len(data) / 4 and not data[1::2].count(0):
        return "utf-16-be"
    return "utf-8-sig"


def _integer(digits: str) -> int:
    """No coordinate and no identifier is longer, and a float does not hold it."""
    if len(digits) > MOST_DIGITS:
        raise ValueError("an integer that is too long")
    return int(digits)


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path), parse_int=_integer)
    except json.JSONDecodeError as error:
        raise DataError(f"The annotation {path} is not valid JSON (line {error.lineno}: {error.msg}).") from None
    except ValueError:  # from `_integer`
        raise DataError(f"The annotation {path} is not valid JSON that can be read: it has numbers too long.") from None
    except RecursionError:
        raise DataError(f"The annotation {path} is not valid JSON that can be read: it is nested too deeply.") from None
