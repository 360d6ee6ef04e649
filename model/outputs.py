"""The rules for every file that a command writes.

An output is never an input and never another output, whatever links lead to it; an existing file is replaced only
with --overwrite; all outputs are checked before the first byte is written. A file appears whole: it is written
beside its place and then renamed. Logs, which grow line by line, are written in place.

`-`, /dev/stdout, /dev/fd/N, /dev/null and named pipes are outputs, too. They are written to directly.
"""

import errno
import fcntl
import io
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, cast
from uuid import uuid4

from uepnet.model.errors import InputError, OutputError

STANDARD_STREAMS = {"-": 1, "/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}

Identity = tuple[int, int, str]  # device, inode and EXISTS; for a file that does not exist, its folder's and the name
EXISTS, PIPE = "", "|"


@dataclass(frozen=True, slots=True)
class Output:
    """A file that a command is going to write."""

    option: str  # as the user gave it, for messages
    path: Path
    suffixes: tuple[str, ...] = ()  # how the name of a regular file must end
    resumed: bool = False  # it may exist: it is continued
    advice: str = "choose another name, or replace it with --overwrite"

    @property
    def shown(self) -> str:
        return self.option if str(self.path) == "-" else f"{self.option} {self.path}"


def check_outputs(outputs: Iterable[Output], inputs: Iterable[str | Path] = (), overwrite: bool = False) -> None:
    """Refuse what would destroy a file or could not be written. Inputs are files, and folders with all in them."""
    existing: dict[Identity, Output] = {}
    named: dict[Identity, Output] = {}
    for output in outputs:
        identity = _check_place(output)
        if identity is None:
            continue
        if identity in named:
            options = " and ".join(dict.fromkeys((named[identity].option, output.option)))
            raise InputError(f"{options} name the same file, {output.path}: give each its own name.")
        named[identity] = output
        if identity[2] == EXISTS:
            existing[identity] = output
    if not existing:
        return
    for identity in _identities(inputs):
        if identity in existing:
            output = existing[identity]
            raise InputError(f"{output.shown} is an input: write to another file.")
    for output in existing.values():
        if not output.resumed and not overwrite and descriptor(output.path) is None:
            raise InputError(f"{output.shown} exists: {output.advice}.")


def descriptor(path: Path) -> int | None:
    """The open file that a path such as - or /dev/stdout stands for."""
    text = str(path)
    numbered = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d{1,6})", text)
    return int(numbered[1]) if numbered else STANDARD_STREAMS.get(text)


def is_regular(path: Path) -> bool:
    """Whether the output is, or will be, a file that can be read again: no pipe, device or standard stream."""
    return descriptor(path) is None and (not path.exists() or path.is_file())


def picture_format(path: Path) -> str:
    """The format that a picture's name asks for; a pipe or a device gets PNG."""
    return path.suffix.lower().removeprefix(".") if is_regular(path) and path.suffix else "png"


def is_standard_output(path: Path) -> bool:
    return descriptor(path) == 1


def open_log(path: Path) -> BinaryIO:
    """An empty file to be written in place, unbuffered: what was written is kept when the process is killed."""
    number = descriptor(path)
    try:
        if number is None:
            return cast(BinaryIO, path.open("wb", buffering=0))
        if number == 1:
            sys.stdout.flush()  # what was printed comes first
        return cast(BinaryIO, os.fdopen(os.dup(number), "wb", buffering=0))
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from None


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO | io.BufferedWriter]:
    """A file that appears under its name when it is complete; after an error the old one is still there."""
    if not is_regular(path):
        with _explained(path), open_log(path) as raw, io.BufferedWriter(cast(io.RawIOBase, raw)) as file:
            yield file
        return
    with _explained(path):
        place = path.resolve()  # a link stays a link
        partial = place.with_name(f".uepnet-{uuid4().hex[:12]}.part")
        try:
            with partial.open("xb") as file:
                yield file
            if place.exists():
                partial.chmod(stat.S_IMODE(place.stat().st_mode))
            partial.replace(place)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise


@contextmanager
def whole_text(path: Path) -> Iterator[TextIO]:
    """`whole_file` for UTF-8 text; line ends are written as they are given."""
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        yield text
        text.flush()
        text.detach()


def write_all(file: BinaryIO, content: bytes) -> int:
    """Write to an unbuffered file: a disk that is almost full takes a part first. Returns the bytes written."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
    return len(content)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has seen enough: no error
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from None


def _check_place(output: Output) -> Identity | None:
    """Refuse a place where no file can be; returns what identifies it, None for what many may share."""
    name = output.shown
    number = descriptor(output.path)
    try:
        found = output.path.stat() if number is None else _open_for_writing(number)
    except FileNotFoundError:
        return _check_new(output, name)
    except (OSError, ValueError) as error:
        raise InputError(f"{name} cannot be written: {getattr(error, 'strerror', None) or error}.") from None
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"{name} is a folder: give the name of a file.")
    if stat.S_ISBLK(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        raise InputError(f"{name} is a block device or a socket: give the name of a file.")
    if number is None and not os.access(output.path, os.W_OK):
        raise InputError(f"{name} cannot be written: permission denied.")
    if number is None and stat.S_ISREG(found.st_mode):
        _check_suffix(output, name)
    if stat.S_ISCHR(found.st_mode) and number is None:
        return None  # /dev/null takes any number of outputs
    return found.st_dev, found.st_ino, EXISTS if stat.S_ISREG(found.st_mode) else PIPE


def _open_for_writing(number: int) -> os.stat_result:
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return os.fstat(number)


def _check_new(output: Output, name: str) -> Identity:
    _check_suffix(output, name)
    try:
        place = output.path.resolve()  # a link that points nowhere creates the file that it points to
        if len(os.fsencode(place.name)) > os.pathconf(place.parent, "PC_NAME_MAX"):
            raise InputError(f"{name} cannot be written: the name is too long.")
        folder = place.parent.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{name}: there is no folder {output.path.parent}.") from None
    except (OSError, RuntimeError) as error:  # a loop of links
        raise InputError(f"{name} cannot be written: {getattr(error, 'strerror', None) or error}.") from None
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise InputError(f"{name} cannot be written: no permission for the folder {place.parent}.")
    return folder.st_dev, folder.st_ino, place.name


def _check_suffix(output: Output, name: str) -> None:
    if output.suffixes and output.path.suffix.lower() not in output.suffixes:
        raise InputError(f"{name}: the name must end in {_listed(output.suffixes)}.")


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _identities(inputs: Iterable[str | Path]) -> Iterator[Identity]:
    """Every file that is read: the inputs themselves and what lies in folders. What cannot be read is no concern."""
    for path in inputs:
        with suppress(OSError, ValueError):
            number = descriptor(Path(path)) if str(path) != "-" else 0  # of inputs, - is standard input
            found = Path(path).stat() if number is None else os.fstat(number)
            yield found.st_dev, found.st_ino, EXISTS
            if stat.S_ISDIR(found.st_mode):
                yield from _identities_below(path)


def _identities_below(folder: str | Path) -> Iterator[Identity]:
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                found = os.stat(os.path.join(parent, name))  # noqa: PTH116, PTH118 - many files: a Path is slow
                yield found.st_dev, found.st_ino, EXISTS
