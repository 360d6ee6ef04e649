"""The folder of a run: it is claimed by one process at a time, and a start that fails leaves nothing of it."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from uepnet.model.errors import DataError, OutputError

CHECKPOINT = "checkpoint.pt"
PATIENCE_SECONDS = 7.0


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Create the folder of a new run and lock it; refuse one that is not empty.

    After an error, or when the training is stopped, a run without a checkpoint is removed: `--out` can be used again.
    """
    made = missing(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise OutputError(f"The run's folder {folder} cannot be made: {error.strerror}.") from None
    if occupied:
        raise DataError(f"{folder} is not empty: choose another --out, or continue its run with --resume.")
    try:
        with locked(folder):
            yield
    except BaseException:
        if not (folder / CHECKPOINT).exists():
            _empty(folder)
            remove(made)
        raise


def missing(folder: Path) -> list[Path]:
    """The folder and those above it that do not exist yet, from the inside out."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def remove(folders: Sequence[Path]) -> None:
    """Those of the folders, from the inside out, that hold nothing."""
    for path in folders:
        with suppress(OSError):  # somebody has put something there
            path.rmdir()


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training the same run. The lock ends with the process, however that ends."""
    try:
        place = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise DataError(f"The run {folder} cannot be opened: {error.strerror}.") from None
    try:
        _lock(place, folder)
        yield
    finally:
        os.close(place)


def _lock(place: int, folder: Path) -> None:
    """Loader processes of a killed run share its lock and notice within seconds that they are alone: wait for them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                text = f"{folder} is being trained by another process: wait for it, or stop it first."
                raise DataError(text) from None
            time.sleep(0.2)
        except OSError:
            return  # a file system without locks
        else:
            return
