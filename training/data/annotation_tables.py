"""Tables of people: the reference list file and CSV."""

import csv
import io
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from uepnet.model.errors import DataError
from uepnet.training.data.annotations import PROPOSED, UNCORRECTED, ZERO_BASED, decoded, read_text, text_points
from uepnet.training.data.coco import samples
from uepnet.training.data.listing import check_name, index_file, plain
from uepnet.training.data.sample import Points, Sample

SHOWN = 24  # characters of a wrong number, in an error
# What people call the columns, in order of preference.
COLUMNS = {
    "image": ("image", "filename", "file_name", "file name", "file", "image_name", "image_path", "path", "picture",
              "photo", "frame", "img", "bild", "datei", "dateiname"),
    "x": ("x", "x_px", "x [px]", "x (px)", "cx", "x_center", "center_x", "point_x", "px"),
    "y": ("y", "y_px", "y [px]", "y (px)", "cy", "y_center", "center_y", "point_y", "py"),
}  # fmt: skip


def listed(root: Path, split: str) -> list[Sample]:
    """Lines `image annotation.txt`, both relative to the list; each annotation has lines `x y`, 0-based."""
    index = index_file(root, split, ("*.list", "train*.txt", "val*.txt", "test*.txt"))
    if index is None:
        return []
    found = []
    for number, line in enumerate(read_text(index).splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2:
            raise DataError(f"Line {number} of {index} is not `image annotation`, two paths without blanks in them.")
        for field in fields:
            check_name(field, index)
        image, annotation = (index.parent / field for field in fields)
        read = partial(text_points, annotation, ZERO_BASED)
        found.append(Sample(fields[0], image, read, annotations=(annotation,)))
    return found


def table(root: Path, split: str) -> list[Sample]:
    """A CSV file with the columns image, x, y: one row for each person; a row without x and y lists an image without
    people."""
    index = index_file(root, split, ("*.csv", "*.CSV", "*.tsv"))
    if index is None:
        return []
    text, guessed = decoded(index)
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    # Strict, or else a quotation mark that is not closed would swallow the rest of the file.
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    people: dict[str, list[tuple[int, str, str]]] = {}
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        at = _columns(header, index)
        for row in rows:
            if not any(field.strip() for field in row):
                continue
            _check_width(row, len(header), rows.line_num, index)
            name, x, y = ((row[column].strip() if column < len(row) else "") for column in at)
            if not name:
                raise DataError(f"Line {rows.line_num} of {index} names no image.")
            if "\n" in name + x + y:
                raise DataError(f"{index} has a quotation mark that is not closed, before line {rows.line_num}.")
            listed_rows = people.setdefault(plain(name), [])
            if x or y:
                listed_rows.append((rows.line_num, x, y))
    except csv.Error as error:
        raise DataError(f"Line {rows.line_num} of {index} is not CSV: {error}.") from None
    return samples(index, people, _row_points, guessed + ((UNCORRECTED,) if PROPOSED in header else ()))


def _columns(header: Sequence[str], index: Path) -> list[int]:
    """The indices of the columns image, x and y."""
    found = {}
    for column, names in COLUMNS.items():
        found[column] = next((header.index(name) for name in names if name in header), None)
    missing = [column for column, position in found.items() if position is None]
    if missing:
        has = f"its first line has {', '.join(header)}" if any(header) else "it is empty"
        raise DataError(
            f"{index} needs a first line with the columns image, x and y; {has}, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing."
        )
    return [position for position in found.values() if position is not None]


def _check_width(row: Sequence[str], width: int, number: int, index: Path) -> None:
    """`a.jpg,412,5,96,0` under three columns: decimal commas that are not quoted would shift the columns."""
    extra = [field for field in row[width:] if field.strip()]
    if extra:
        raise DataError(
            f"Line {number} of {index} has {len(row)} fields under {width} columns. If its numbers have decimal commas "
            "(412,5), write decimal points (412.5), or separate the columns by semicolons."
        )


def _row_points(index: Path, rows: Sequence[tuple[int, str, str]]) -> Points:
    values = []
    for number, *texts in rows:
        try:
            x, y = map(float, texts)
        except ValueError:
            x = y = math.nan
        if not (math.isfinite(x) and math.isfinite(y)):
            raise DataError(f"Line {number} of {index}: {_why_no_numbers(texts)}.")
        values.append((x, y))
    return np.array(values).reshape(-1, 2)


def _why_no_numbers(texts: Sequence[str]) -> str:
    comma = next((text for text in texts if text.count(",") == 1 and text.replace(",", "").lstrip("-").isdigit()), None)
    if comma is not None:
        return f"{comma} has a decimal comma: write {comma.replace(',', '.')} (decimal points in the whole file)"
    shown = [repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...") if text else "nothing" for text in texts]
    return f"x and y are not both numbers, but {' and '.join(shown)}"
