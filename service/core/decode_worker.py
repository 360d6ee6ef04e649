"""A process that decodes images, and nothing else: bytes in, pixels out. Started by `decoders.py`.

It decodes what strangers send, so it has little to lose: no keys, no network, no model; the kernel bounds its memory
and its processor time, and the service kills it when nobody waits for its image any more. Messages go over a socket
that is the process's file descriptor 0; bytes and pixels go in the service's shared memory, whose descriptors come with
the message.
"""

import json
import math
import mmap
import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import AvifImagePlugin, Image

from uepnet.model.errors import ImageError, ImageTooLarge
from uepnet.model.image import Shape, load_image, pixels_of
from uepnet.service.memory import return_free_memory

MESSAGE_BYTES = 4096
READY, DECODE, MEASURE = b"ready", b"decode", b"measure"
KEPT_BYTES = 96 * 2**20  # of memory between two images; of it a third is the interpreter


@dataclass(frozen=True)
class DecodeLimits:
    max_pixels: int
    max_side: int
    cpu_seconds: float  # for one image, over all threads
    memory_bytes: int  # of the whole process


def main() -> None:
    """Until the service closes the socket, also by dying."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the service, which drains first and then closes the socket
    # A slot is one core, and each thread would take 72 MB of address space: on many cores more than the limit.
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    limits = DecodeLimits(**json.loads(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    with socket.socket(fileno=0) as connection:
        connection.send(READY)
        while True:
            message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 2)
            if not message:
                return
            _bound_cpu_time(limits.cpu_seconds)
            answer = partial(_measured, limits) if message == MEASURE else partial(_decoded, limits, descriptors[1])
            connection.send(_told(partial(answer, _content(descriptors[0]))))
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            _keep_little_memory()


def _content(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        return file.read()


def _told(answer: Callable[[], dict[str, Any]]) -> bytes:
    """What `answer` tells, or why it has nothing to tell."""
    try:
        told = answer()
    except ImageError as error:
        told = {"too_large": isinstance(error, ImageTooLarge), "error": str(error)}
    return json.dumps(told).encode()


def _measured(limits: DecodeLimits, content: bytes) -> dict[str, Any]:
    return {"pixels": pixels_of(content, limits.max_pixels, limits.max_side)}


def _decoded(limits: DecodeLimits, place: int, content: bytes) -> dict[str, Any]:
    """The pixels go to the shared memory `place`."""
    pixels = load_image(content, limits.max_pixels, limits.max_side, partial(_mapped, place))
    return {"shape": list(pixels.shape)}


def _mapped(place: int, shape: Shape) -> NDArray[np.uint8]:
    """An array in shared memory: a copy there would double what the pixels take."""
    size = math.prod(shape)
    if os.fstat(place).st_size < size:
        os.ftruncate(place, size)
    at_once = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)  # not page by page, as they are written
    return np.frombuffer(mmap.mmap(place, size, at_once), np.uint8).reshape(shape)


def _keep_little_memory() -> None:
    """What small images leave is kept, as it makes the next one faster; what a large one leaves goes back."""
    with suppress(OSError):  # not Linux
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
        if resident > KEPT_BYTES:
            Image.core.clear_cache()  # type: ignore[attr-defined]
            return_free_memory()


def _bound_cpu_time(seconds: float) -> None:
    """The kernel kills this process once it has used so much more time of the processor."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def shared_memory() -> int:
    """A descriptor of memory that two processes may map. Not in /dev/shm, which is small in containers."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("uepnet-image", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # not Linux
        return os.dup(file.fileno())


def command(limits: DecodeLimits) -> list[str]:
    return [sys.executable, "-m", "uepnet.service.core.decode_worker", json.dumps(asdict(limits))]


if __name__ == "__main__":
    main()
