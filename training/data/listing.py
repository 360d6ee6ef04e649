"""Which file lists the pictures of a split, and where the pictures are that it names.

The file is `--root` itself, or lies in that folder, in `annotations/` in it, or in a folder named after the split. The
words of its name say its split: train.csv, test.list, instances_val2017.json; a file whose name says none is `train`.

A picture is searched under the name that the file gives. If there is none, a name that differs only in case, Unicode
form, folder or missing ending is taken instead, and a note says so.
"""

import os
import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlparse

from uepnet.model.errors import DataError
from uepnet.model.file_names import IMAGE_SUFFIXES

SPLIT_WORDS = {
    "train": {"train", "training"},
    "val": {"val", "valid", "validation"},
    "test": {"test", "testing"},
}
# What may lie there instead of the file that a reader looks for, by its ending.
INSTEAD = {
    ".zip": "unpack it",
    ".xlsx": "save it as CSV",
    ".xls": "save it as CSV",
    ".ods": "save it as CSV",
    ".xml": "CVAT's is --dataset cvat",
    ".json": "COCO's is --dataset coco, Label Studio's is --dataset label-studio",
    ".csv": "a table of points is --dataset csv",
    ".list": "a list of pictures and annotations is --dataset list",
}
FOLDERS = ("", "images", "frames", "images/default", "images/Train", "images/train", "data")
LONGEST_NAME, LONGEST_PATH = 255, 3000  # bytes; Linux takes no longer ones
UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-(?=.)")  # Label Studio puts it before the name of an uploaded file


def index_file(root: Path, split: str, patterns: Sequence[str]) -> Path | None:
    """The file of a split; None where there is no `val` (it is then cut from train)."""
    if root.suffix.lower() == ".zip" and root.is_file():
        raise DataError(f"{root} is a ZIP archive: unpack it and give the folder as the root.")
    if root.is_file():
        # A file is a split of its own. Asked for `test`, it must say so: else training data would be tested on.
        found = [root] if split == "train" or split_of(root.name) == split else []
    else:
        folders = [root, root / "annotations", *(root / word for word in sorted(SPLIT_WORDS[split]))]
        files = [path for folder in folders for pattern in patterns for path in sorted(folder.glob(pattern))]
        splits = {path: split_of(path.relative_to(root).as_posix()) for path in files}
        found = [path for path in splits if splits[path] == split]
        if not found and split == "train":
            found = [path for path in splits if splits[path] is None]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise DataError(f"{root} holds several lists ({names}): give the one to use as the root.")
    if not found and split != "val":
        raise DataError(f"{root} is or holds no {patterns[0]} for the {split} split{advice(root, split, patterns)}.")
    return found[0] if found else None


def advice(root: Path, split: str, patterns: Sequence[str]) -> str:
    """What is there instead of the file that is missing, and what to do with it."""
    if split == "test":
        return ": its name must say so, as test does in test.csv; or use the split val"
    if root.is_file():
        return f": the name of {root.name} says that it is another split"
    folders = [folder for folder in (root, root / "annotations") if folder.is_dir()]
    names = [path.name for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
    names = [name for name in names if not name.startswith(".")]
    for suffix, what in INSTEAD.items():
        name = next((name for name in names if name.lower().endswith(suffix)), None)
        if name is not None and f"*{suffix}" in patterns:
            return f": {name} is called after another split"
        if name is not None:
            return f", but {name}: {what}"
    return ""


def split_of(name: str) -> str | None:
    words = set(re.findall(r"[a-z]+", name.lower()))
    return next((split for split, marks in SPLIT_WORDS.items() if words & marks), None)


def plain(name: str) -> str:
    """One spelling for a file: forward slashes, no leading `./`; the path within a URL."""
    if "://" in name or name.startswith("/data/"):
        url = urlparse(name)
        local = parse_qs(url.query).get("d", [])  # Label Studio: /data/local-files/?d=folder/a.jpg
        name = local[0] if local else unquote(url.path).removeprefix("/data/").lstrip("/")
    return str(PurePosixPath(name.replace("\\", "/")))


class Pictures:
    """The pictures that belong to an annotation file: beside it, in `images/`, or where COCO's tools put them."""

    def __init__(self, index: Path) -> None:
        base = index.parent.parent if index.parent.name in ("annotations", "labels") else index.parent
        subset = index.stem.rpartition("_")[2]
        names = dict.fromkeys((*FOLDERS, f"images/{subset}", subset))
        self.index, self.base = index, base
        self.folders = [base / name for name in names]

    def find(self, name: str) -> tuple[Path, tuple[str, ...]]:
        """The path of the picture, and a note if it is called otherwise; a missing one gets the path it should have."""
        check_name(name, self.index)
        for folder in self.folders:
            if (folder / name).is_file():
                return folder / name, ()
        found = self._others.get(_folded(name)) or self._others.get(_folded(PurePosixPath(name).name))
        if found is None and UPLOAD_PREFIX.match(bare := PurePosixPath(name).name):
            found = self._others.get(_folded(UPLOAD_PREFIX.sub("", bare)))
            if found is not None:
                return found, ()  # the prefix is Label Studio's own: nothing was guessed
        if found is None and PurePosixPath(name).suffix.lower() not in IMAGE_SUFFIXES:
            found = next(
                (path for kind in sorted(IMAGE_SUFFIXES) if (path := self._others.get(_folded(name) + kind))), None
            )
        if found is None:
            return self.base / name, ()
        bare = PurePosixPath(name).name
        form = ", in another Unicode form" if found.name != bare and _composed(found.name) == _composed(bare) else ""
        return found, (f"is listed as {name}, the picture found for it is {found.relative_to(self.base)}{form}",)

    @cached_property
    def _others(self) -> dict[str, Path]:
        """Pictures by their folded path and bare name; a name that means two of them finds neither."""
        known: dict[str, Path | None] = {}
        for folder in (folder for folder in self.folders if folder.is_dir()):
            for path in sorted(folder.rglob("*") if folder != self.base else folder.iterdir()):
                if path.suffix.lower() not in IMAGE_SUFFIXES or not path.is_file():
                    continue
                for key in {_folded(path.relative_to(folder).as_posix()), _folded(path.name)}:
                    known[key] = path if known.get(key, path) == path else None
        return {key: path for key, path in known.items() if path is not None}


def _folded(name: str) -> str:
    return _composed(name).casefold()


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def check_name(name: str, index: Path) -> None:
    """Refuse a name for which the system would not even look."""
    try:
        coded = os.fsencode(name)
    except UnicodeEncodeError:
        coded = b"\0"
    if b"\0" in coded or len(coded) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in coded.split(b"/")):
        raise DataError(f"{index} lists a file by a name that no file can have: {name[:40]!r}.")
