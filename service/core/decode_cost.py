"""How long decoding an image will take: expected from its header, corrected by what earlier images took.

A file of one kilobyte may take seconds: its pixels and its scans count, not its bytes. The header is read here by a few
fixed positions, never by an image library, which may be slow or take memory on a hostile header. A header that lies, or
a format that hides its cost, is found out by the time that its images take.
"""

import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Literal

from uepnet.model.image_cost import MAX_SCANS

# Measured with photographs on one core of an EPYC: 4 (JPEG) to 24 ns (PNG). The first image of a kind corrects it.
SECONDS_PER_PIXEL = 20e-9
SCAN_WEIGHT = 0.1  # of decoding the pixels once; measured: 0.02 for an empty Huffman scan, 0.1 for an arithmetic one
REMEMBERED = 15  # the latest images of a kind tell what the next one takes
HEADER_BYTES = 65_536  # in which AVIF tells its size; a JPEG may have much metadata before it does
MAX_SEGMENTS = 1000  # of a JPEG, before its size

_SIZED_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers that are followed by a JPEG's size
_ONE_PASS_FRAMES = (0xC0, 0xC1, 0xC3, 0xC9, 0xCB)
_START_OF_SCAN = b"\xff\xda"
Order = Literal["big", "little"]


@dataclass(frozen=True, slots=True)
class CpuWork:
    """What is to be done. All of one kind takes about the same time per pixel."""

    kind: str
    pixels: float  # each as often as it is gone over; 0 where the work is done at once


NO_WORK = CpuWork("none", 0)


class WorkCosts:
    """How many seconds work takes, learnt while it is done. Thread: used by request threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        self._seconds_per_pixel: dict[str, float] = {}

    def expected(self, work: CpuWork) -> float:
        return work.pixels * self._seconds_per_pixel.get(work.kind, SECONDS_PER_PIXEL)

    def note(self, work: CpuWork, seconds: float, is_whole: bool = True) -> None:
        """Work that failed tells something only where it took longer than expected: most failures come early."""
        if not work.pixels or (not is_whole and seconds < self.expected(work)):
            return
        with self._lock:
            done = self._done[work.kind]
            done.append((seconds, work.pixels))
            total_seconds, total_pixels = (sum(column) for column in zip(*done, strict=True))
            self._seconds_per_pixel[work.kind] = total_seconds / total_pixels


def decode_work(content: bytes | bytearray, max_pixels: int) -> CpuWork:
    """What decoding a file takes. Where its header does not tell, as much as the largest image that is allowed."""
    if content.startswith(b"\xff\xd8"):
        return _jpeg(content, max_pixels)
    if content.startswith(b"\x89PNG"):
        interlaced = " interlaced" if content[28:29] == b"\x01" else ""
        return _work("png" + interlaced, _number(content, 16, 4, "big"), _number(content, 20, 4, "big"), max_pixels)
    if content.startswith(b"GIF"):
        return _work("gif", _number(content, 6, 2), _number(content, 8, 2), max_pixels)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return _work("webp", *_webp_size(content), max_pixels)
    if content[4:8] == b"ftyp":
        return _avif(content, max_pixels)
    if content.startswith((b"II", b"MM", b"BM")):  # TIFF and BMP: their sizes are in places that vary
        return CpuWork(content[:2].decode(), max_pixels)
    return NO_WORK  # no image: refused at once


def _work(kind: str, width: int, height: int, max_pixels: int) -> CpuWork:
    """An image that is too large is refused by its header."""
    return CpuWork(kind, pixels) if 0 < (pixels := width * height) <= max_pixels else NO_WORK


def _jpeg(content: bytes | bytearray, max_pixels: int) -> CpuWork:
    at = 2
    for _ in range(MAX_SEGMENTS):
        at = content.find(b"\xff", at)
        if at < 0 or at + 9 > len(content):
            return NO_WORK  # it ends before its size
        marker = content[at + 1]
        if marker in _SIZED_FRAMES:
            height, width = _number(content, at + 5, 2, "big"), _number(content, at + 7, 2, "big")
            scans = 0 if marker in _ONE_PASS_FRAMES else min(content.count(_START_OF_SCAN), MAX_SCANS)
            work = _work(f"jpeg {marker:x}", width, height, max_pixels)
            return CpuWork(work.kind, work.pixels * (1 + SCAN_WEIGHT * scans))
        if marker == 0xFF:  # fill bytes
            at += 1
        elif marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD8:  # without length
            at += 2
        else:
            at += 2 + _number(content, at + 2, 2, "big")
    return CpuWork("jpeg", max_pixels)


def _webp_size(content: bytes | bytearray) -> tuple[int, int]:
    kind = content[12:16]
    if kind == b"VP8X":
        return 1 + _number(content, 24, 3), 1 + _number(content, 27, 3)
    if kind == b"VP8L":
        bits = _number(content, 21, 4)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return _number(content, 26, 2) & 0x3FFF, _number(content, 28, 2) & 0x3FFF


def _avif(content: bytes | bytearray, max_pixels: int) -> CpuWork:
    """Its boxes give several sizes; a grid of images has the largest."""
    head, largest, at = bytes(content[:HEADER_BYTES]), 0, 0
    while (at := head.find(b"ispe", at) + 4) > 3:
        largest = max(largest, _number(head, at + 4, 4, "big") * _number(head, at + 8, 4, "big"))
    return CpuWork("avif", largest if 0 < largest <= max_pixels else max_pixels)


def _number(content: bytes | bytearray, at: int, size: int, order: Order = "little") -> int:
    return int.from_bytes(content[at : at + size], order)
