"""Which images a command line means: files, folders, patterns and standard input."""

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from uepnet.model.errors import ImageError, InputError
from uepnet.service.frames import PICTURE_SUFFIXES, natural

STANDARD_INPUT = "-"
NO_MATCH = "No file matches this pattern."


@dataclass(frozen=True, slots=True)
class Input:
    path: str  # as it is shown
    relative: PurePath  # below the folder that was named: where its overlay goes
    error: str | None = None  # known before reading

    def read(self) -> bytes:
        if self.error is not None:
            raise ImageError(self.error)
        if self.path == STANDARD_INPUT:
            return sys.stdin.buffer.read()
        try:
            return Path(self.path).read_bytes()
        except OSError as error:
            raise ImageError(f"The file cannot be read: {error.strerror}.") from None


def inputs(arguments: Sequence[str]) -> Iterator[Input]:
    """One after the other, in the order given; what a folder holds, sorted naturally.

    A generator that keeps the names of one folder at a time: a folder of 100,000 costs little memory. A name
    that does not exist comes through as it is, to be reported when it is read.
    """
    for argument in arguments:
        if argument == STANDARD_INPUT:
            yield Input(argument, PurePath("standard-input"))
        elif os.path.isdir(argument):  # noqa: PTH112 - a Path would lose how the name was written
            yield from _folder(argument, PurePath())
        elif glob.has_magic(argument) and not os.path.exists(argument):  # noqa: PTH110
            yield from _matches(argument)
        else:
            yield Input(argument, PurePath(PurePath(argument).name))


def check_inputs(arguments: Sequence[str]) -> None:
    """Refuse where there is nothing at all to count; one missing file among others is reported in its place."""
    missing = [name for name in arguments if not _is_there(name)]
    if len(missing) == len(arguments):
        raise InputError(f"{missing[0]} does not exist.")
    if all(image.error == NO_MATCH for image in inputs(arguments)):
        raise InputError(f"There are no images in {', '.join(arguments)}.")


def _is_there(argument: str) -> bool:
    return argument == STANDARD_INPUT or glob.has_magic(argument) or os.path.exists(argument)  # noqa: PTH110


def _folder(folder: str, relative: PurePath) -> Iterator[Input]:
    """Images in a folder, then those in the folders within; neither hidden ones nor links to folders."""
    folders: list[str] = []
    files: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif PurePath(entry.name).suffix.lower() in PICTURE_SUFFIXES:
                    files.append(entry.name)
    except OSError as error:
        yield Input(folder, relative, f"The folder cannot be read: {error.strerror}.")
    for name in sorted(files, key=natural):
        yield Input(os.path.join(folder, name), relative / name)  # noqa: PTH118
    for name in sorted(folders, key=natural):
        yield from _folder(os.path.join(folder, name), relative / name)  # noqa: PTH118


def _matches(pattern: str) -> Iterator[Input]:
    """What a pattern such as 'photos/**/*.jpg' matches, where the shell has not expanded it."""
    paths = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]  # noqa: PTH113, PTH207
    for path in sorted(paths, key=natural):
        yield Input(path, PurePath(PurePath(path).name))
    if not paths:
        yield Input(pattern, PurePath(pattern), NO_MATCH)
