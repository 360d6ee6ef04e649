"""Which images a command line means: files, folders, patterns and standard input."""

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from uepnet.model.errors import ImageError, InputError
from uepnet.model.file_names import IMAGE_SUFFIXES, natural, printable
from uepnet.model.image import MAX_FILE_BYTES, read_file

STANDARD_INPUT = "-"
NO_MATCH = "No file matches this pattern."


@dataclass(frozen=True, slots=True)
class Input:
    path: str  # as the user named it
    relative: PurePath  # below the folder that was named: where its overlay goes
    error: str | None = None  # known before reading

    @property
    def shown(self) -> str:
        return printable(self.path)

    def read(self) -> bytes:
        if self.error is not None:
            raise ImageError(self.error)
        if self.path != STANDARD_INPUT:
            return read_file(Path(self.path), "The file")
        content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ImageError("Standard input is larger than 1 GiB: it is not an image that can be counted.")
        return content


def inputs(arguments: Sequence[str]) -> Iterator[Input]:
    """The images in the order given; those of a folder in natural order.

    Patterns are expanded first, so that they do not match what the command writes. Of folders, the names of one at
    a time are kept: a folder of 100,000 images takes little memory. A name that does not exist is passed on, to be
    reported when it is read.
    """
    patterns = {name: list(_matches(name)) for name in arguments if _is_pattern(name)}
    for argument in arguments:
        if argument == STANDARD_INPUT:
            yield Input(argument, PurePath("standard-input"))
        elif argument in patterns:
            yield from patterns[argument]
        elif os.path.isdir(argument):  # noqa: PTH112 - a Path would lose how the name was written
            yield from _folder(argument)
        else:
            yield Input(argument, PurePath(PurePath(argument).name))


def check_inputs(arguments: Sequence[str]) -> None:
    """Refuse where there is nothing at all to count; one missing file among others is reported in its place."""
    if arguments.count(STANDARD_INPUT) > 1:
        raise InputError("Standard input (-) can be read only once.")
    missing = [name for name in arguments if not _is_there(name)]
    if len(missing) == len(arguments):
        raise InputError(f"{missing[0]} does not exist.")
    if all(image.error == NO_MATCH for image in inputs(arguments)):
        raise InputError(f"There are no images in {', '.join(arguments)}.")


def _is_pattern(argument: str) -> bool:
    return glob.has_magic(argument) and not os.path.exists(argument)  # noqa: PTH110


def _is_there(argument: str) -> bool:
    return argument == STANDARD_INPUT or glob.has_magic(argument) or os.path.exists(argument)  # noqa: PTH110


def _folder(argument: str) -> Iterator[Input]:
    """Images in a folder, then those in its sub-folders; hidden ones and links to folders are left out.

    Not recursive: folders may be nested deeper than Python's stack.
    """
    waiting = [(argument, PurePath())]
    while waiting:
        folder, relative = waiting.pop()
        try:
            folders, files = _listed(folder)
        except OSError as error:
            yield Input(folder, relative, f"The folder cannot be read: {error.strerror}.")
            continue
        for name in sorted(files, key=natural):
            yield Input(os.path.join(folder, name), relative / name)  # noqa: PTH118
        for name in sorted(folders, key=natural, reverse=True):
            waiting.append((os.path.join(folder, name), relative / name))  # noqa: PTH118


def _listed(folder: str) -> tuple[list[str], list[str]]:
    """The names of sub-folders and of images in a folder."""
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif PurePath(entry.name).suffix.lower() in IMAGE_SUFFIXES:
                files.append(entry.name)
    return folders, files


def _matches(pattern: str) -> Iterator[Input]:
    """What a pattern such as 'photos/**/*.jpg' matches, where the shell has not expanded it."""
    paths = [path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path)]  # noqa: PTH112, PTH207
    for path in sorted(paths, key=natural):
        yield Input(path, PurePath(PurePath(path).name))
    if not paths:
        yield Input(pattern, PurePath(PurePath(pattern).name), NO_MATCH)
