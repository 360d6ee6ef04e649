"""Decoding in processes that can be killed.

Some images cost far more than their size tells (see `model.image_cost`), and a thread that decodes cannot be stopped.
So each decoding slot has a process of its own. It is killed when the image takes too much processor time, when the
request's deadline passes or when its client leaves; the next image gets a new process.

The processes are programs of their own (`exec`), not forks: they share no lock, no device and no memory with the
service.
"""

import json
import logging
import math
import mmap
import os
import select
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uepnet.model.errors import ImageError, ImageTooLarge, InferenceError
from uepnet.service.core.decode_worker import (
    DECODE,
    MEASURE,
    MESSAGE_BYTES,
    READY,
    DecodeLimits,
    command,
    shared_memory,
)

CHECK_SECONDS = 0.2  # how often a waiting thread looks whether anybody still waits for its image
# The worst known format is WebP: libwebp keeps two frames beside the one that it hands over and Pillow's copy of that,
# 16 bytes per pixel. Of 50 megapixels a decoder gets 1.1 GB, of which the interpreter leaves 80 MB unused.
MEMORY_PER_PIXEL = 18
MEMORY_OF_INTERPRETER = 192 * 2**20  # address space of Python with numpy and Pillow, and room for what is no pixel
# Shared memory of images that are done, kept for the next ones: the system would clear new memory for each. A decoder
# keeps what one image leaves that is counted while it decodes another, and no more than a camera's image takes.
KEPT_PLACES, KEPT_PLACE_BYTES = 2, 16 * 2**20
# One thread for BLAS, which decoding does not use. Blocks of more than 16 MiB go back to the system at once; smaller
# ones are kept, as new memory for each image would double the time of decoding a small one.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(16 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
}

log = logging.getLogger(__name__)


class DecoderPool:
    """One process for each thread that decodes at the moment.

    Thread: `decode` runs in request threads, the other methods on the event loop.
    """

    def __init__(self, max_pixels: int, max_side: int, cpu_seconds: float) -> None:
        memory = MEMORY_OF_INTERPRETER + MEMORY_PER_PIXEL * max_pixels
        self._limits = DecodeLimits(max_pixels, max_side, cpu_seconds, memory)
        self._lock = threading.Lock()
        self._idle: list[_DecoderProcess] = []
        self._stopped = False

    def start(self) -> None:
        """Start one process and wait until it is ready, so that the first image need not; others start when needed."""
        process = _DecoderProcess(self._limits)
        with suppress(ConnectionError):  # the first image will tell
            process.wait_until_ready(lambda: None)
        self._give_back(process)

    def decode(self, content: bytes | bytearray, check: Callable[[], None]) -> NDArray[np.uint8]:
        """The pixels [height, width, 3], read-only. `check` raises when nobody waits for them any more."""
        with self._process() as process:
            return process.decode(content, check)

    def measure(self, content: bytes | bytearray, check: Callable[[], None]) -> int:
        """How many pixels the image has by its header, which is all that is read."""
        with self._process() as process:
            return process.measure(content, check)

    @contextmanager
    def _process(self) -> Iterator["_DecoderProcess"]:
        process = self._take()
        try:
            yield process
        except ImageError:
            self._give_back(process)
            raise
        except BaseException:
            if process.has_image:
                process.kill()
                process = _DecoderProcess(self._limits)  # starts meanwhile
            self._give_back(process)
            raise
        self._give_back(process)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()

    def _take(self) -> "_DecoderProcess":
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _DecoderProcess(self._limits)

    def _give_back(self, process: "_DecoderProcess") -> None:
        with self._lock:
            if process.is_alive and not self._stopped:
                self._idle.append(process)
                return
        process.kill()


class _DecoderProcess:
    """Thread: used by one thread at a time."""

    def __init__(self, limits: DecodeLimits) -> None:
        self._limits = limits
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                command(limits),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # where libraries print what they think of an image
                env={name: value for name, value in os.environ.items() if not name.startswith("UEPNET_")} | ENVIRONMENT,
                start_new_session=True,  # Ctrl-C is the service's to handle
            )
        self._readable = select.poll()  # unlike select.select it takes descriptors above 1023
        self._readable.register(self._socket, select.POLLIN)
        self.is_alive = True
        self.has_image = False  # before it is ready it has none, and need not be killed where nobody waits any more
        self._ready = False
        self._places: list[int] = []  # descriptors of shared memory that is free

    def decode(self, content: bytes | bytearray, check: Callable[[], None]) -> NDArray[np.uint8]:
        try:
            place = self._places.pop()
        except IndexError:
            place = shared_memory()
        try:
            shape = self._ask(DECODE, content, check, place)["shape"]
            pixels = np.frombuffer(mmap.mmap(place, math.prod(shape), prot=mmap.PROT_READ), np.uint8)
        except BaseException:
            self._free(place)
            raise
        weakref.finalize(pixels, self._free, place).atexit = False  # once the last view of it is gone, too
        return pixels.reshape(shape)

    def measure(self, content: bytes | bytearray, check: Callable[[], None]) -> int:
        return int(self._ask(MEASURE, content, check)["pixels"])

    def _free(self, place: int) -> None:
        """Nobody uses this shared memory any more. Runs on any thread."""
        if len(self._places) < KEPT_PLACES and os.fstat(place).st_size <= KEPT_PLACE_BYTES:
            self._places.append(place)
        else:
            os.close(place)
        if not self.is_alive:
            self._close_places()

    def _close_places(self) -> None:
        with suppress(IndexError):
            while True:
                os.close(self._places.pop())

    def _ask(self, what: bytes, content: bytes | bytearray, check: Callable[[], None], *places: int) -> dict[str, Any]:
        """What the process tells; `places` are the shared memory for what else it answers."""
        try:
            self.wait_until_ready(check)
            self.has_image = True
            self._send(what, content, places)
            message = self._receive(check)
            self.has_image = False
        except ConnectionError:
            message = b""
        if not message:
            raise self._death()
        told: dict[str, Any] = json.loads(message)
        if "error" in told:
            raise (ImageTooLarge if told["too_large"] else ImageError)(told["error"])
        return told

    def wait_until_ready(self, check: Callable[[], None]) -> None:
        if not self._ready and self._receive(check) != READY:
            raise ConnectionError
        self._ready = True

    def _receive(self, check: Callable[[], None]) -> bytes:
        while not self._readable.poll(1000 * CHECK_SECONDS):
            check()
        return self._socket.recv(MESSAGE_BYTES)

    def kill(self) -> None:
        self.is_alive = False
        self._close_places()
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def _send(self, what: bytes, content: bytes | bytearray, places: Sequence[int]) -> None:
        with os.fdopen(shared_memory(), "wb") as memory:
            memory.write(content)
            memory.flush()
            socket.send_fds(self._socket, [what], [memory.fileno(), *places])

    def _death(self) -> Exception:
        """Why the process has ended in the middle of an image."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self.kill()
        code = self._process.returncode
        log.warning("a decoding process ended with code %d", code)
        if code == -signal.SIGXCPU:
            return ImageTooLarge(f"Decoding the image takes more than {self._limits.cpu_seconds:g} seconds.")
        if code == -signal.SIGKILL:  # by the kernel, where memory is short, or by an operator
            return InferenceError("The image could not be decoded.")
        return ImageError("The image is damaged: its decoder failed.")
