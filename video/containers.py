"""How long a video file says that it is, from the sizes in its container: more than there is means that it was cut off.

Durations in headers are not enough for this: a Matroska file that does not start at 0 gives its last timestamp, and
an AVI that was cut keeps the duration of the whole.
"""

import os
import struct
from pathlib import Path
from typing import BinaryIO

EBML = b"\x1a\x45\xdf\xa3"  # Matroska and WebM
SEGMENT = b"\x18\x53\x80\x67"
# The names of what a segment holds, and a cluster: they show that an element begins where one is expected.
ELEMENTS = (
    *(b"\x11\x4d\x9b\x74", b"\x15\x49\xa9\x66", b"\x16\x54\xae\x6b", b"\x1c\x53\xbb\x6b", b"\x1f\x43\xb6\x75"),
    *(b"\x10\x43\xa7\x70", b"\x12\x54\xc3\x67", b"\x19\x41\xa4\x69", b"\xec", b"\xbf"),
    *(b"\xe7", b"\xa3", b"\xa0", b"\xab", b"\xa7", b"\x58\x54"),
)
ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")  # WMV
ASF_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
NO_LENGTH = (0, 0xFFFFFFFF)  # of an AVI that nobody finished
MXF_HEADER = bytes.fromhex("060e2b34020501010d0102010102")
MXF_OPEN = (1, 3)  # the marks of a header that is to be completed at the end
MXF_INDEX = bytes.fromhex("060e2b34020501010d0102010111")  # of all partitions, at the end
# The boxes at the top of an MP4; what follows under another name does not belong to the video.
BOXES = frozenset(
    b"ftyp moov mdat moof mfra free skip wide uuid sidx ssix styp emsg prft meta udta pdin pnot PICT".split()
)
TAIL_BYTES = 70_000  # more than the largest page of Ogg
MAX_PARTS = 100_000  # boxes or chunks that are looked at; a damaged file could have any number


def declared_bytes(path: Path) -> int | None:
    """The size that the container's parts add up to; None where the format or this file does not say."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
            if head[:4] == b"RIFF":
                return _riff(file)
            if head[:4] == EBML:
                return _matroska(file)
            if head == ASF:
                return _asf(file)
            if head[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip"):
                return _boxes(file)[0]
    except (OSError, struct.error, OverflowError):
        return None
    return None


def lacks_index(path: Path) -> bool:
    """Whether it is an MP4 without `moov`: the recorder was stopped before it wrote the index."""
    try:
        with path.open("rb") as file:
            return file.read(12)[4:8] == b"ftyp" and b"moov" not in _boxes(file)[1]
    except (OSError, struct.error, OverflowError):
        return False


def lost_fragments(path: Path) -> int | None:
    """Where an MP4 in fragments turns unreadable although more fragments follow; None where it does not."""
    try:
        with path.open("rb") as file:
            if file.read(8)[4:] not in (b"ftyp", b"styp"):
                return None
            end, names = _boxes(file)
            if b"moof" not in names or end >= os.fstat(file.fileno()).st_size:
                return None
            file.seek(end)
            rest = b""
            while chunk := file.read(1 << 20):
                if b"moof" in rest + chunk:
                    return end
                rest = chunk[-3:]
    except (OSError, struct.error, OverflowError):
        return None
    return None


def unfinished(path: Path) -> bool:
    """Whether it is an AVI or MXF into which the recorder, when it was stopped, had not yet written the length."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
            if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
                return struct.unpack("<I", head[4:8])[0] in NO_LENGTH
            if head[:14] != MXF_HEADER or head[14] not in MXF_OPEN:
                return False
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return MXF_INDEX not in file.read()
    except (OSError, struct.error, OverflowError):
        return False


def lacks_end(path: Path) -> bool:
    """Whether a format that marks its end (GIF, animated PNG, Ogg) is without the mark."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            tail = file.read()
    except OSError:
        return False
    if head[:4] == b"GIF8":
        return not tail.rstrip(b"\0").endswith(b";")
    if head == b"\x89PNG\r\n\x1a\n":
        return b"IEND" not in tail[-64:]
    if head[:4] == b"OggS":
        flags = tail[tail.rfind(b"OggS") + 5 :][:1]
        return not flags or not flags[0] & 4  # the last page of a stream
    return False


def _asf(file: BinaryIO) -> int | None:
    """What the header of a WMV gives as the size of the file; None where it was written to a stream."""
    length = struct.unpack("<Q", file.read(8))[0]
    header = file.read(min(length, 1 << 20))
    at = header.find(ASF_FILE_PROPERTIES)
    size = 0 if at < 0 else struct.unpack_from("<Q", header, at + 40)[0]
    return size or None


def _riff(file: BinaryIO) -> int | None:
    """An AVI is one RIFF chunk, or several of about a gigabyte; None where the length was never written."""
    size, position = os.fstat(file.fileno()).st_size, 0
    for _ in range(MAX_PARTS):
        file.seek(position)
        head = file.read(8)
        if len(head) < 8 or head[:4] != b"RIFF":
            break  # what follows is no part of the video
        length = struct.unpack("<I", head[4:])[0]
        if length in NO_LENGTH:
            return None
        position += 8 + length + length % 2
        if position >= size:
            break
    return position if position <= size + 1 else position - position % 2


def _boxes(file: BinaryIO) -> tuple[int, set[bytes]]:
    """Where the last box of an MP4 ends, and which boxes there are at the top."""
    size, position = os.fstat(file.fileno()).st_size, 0
    names: set[bytes] = set()
    for _ in range(MAX_PARTS):
        file.seek(position)
        head = file.read(16)
        if len(head) < 8:
            break
        length, name = struct.unpack(">I4s", head[:8])
        if name not in BOXES:
            break
        names.add(name)
        if length == 1 and len(head) == 16:
            length = struct.unpack(">Q", head[8:])[0]
        if length == 0:  # it reaches to the end of the file
            return size, names
        if length < 8:
            break
        position += length
        if position >= size:
            break
    return position, names


def matroska_end(file: BinaryIO, size: int) -> int | None:
    """Where the last element of a segment without a size ends; None where it has a size, or too many elements."""
    position, length = _segment(file) or (0, 0)
    if length is not None:
        return None
    for _ in range(MAX_PARTS):
        if position >= size:
            return position
        file.seek(position)
        head = file.read(4)
        name = next((name for name in ELEMENTS if head.startswith(name)), None)
        if name is None:
            return position  # what follows is no part of the video
        file.seek(position + len(name))
        position = (_ebml_size(file) or 0) + file.tell()  # in a cluster without a size, on with its blocks
    return None


def _matroska(file: BinaryIO) -> int | None:
    """Where the segment ends; None where it was written to a stream and has no size."""
    start, length = _segment(file) or (0, None)
    return None if length is None else start + length


def _segment(file: BinaryIO) -> tuple[int, int | None] | None:
    """Where the segment's content begins, and its length where it has one."""
    file.seek(4)
    file.seek(_ebml_size(file) or 0, os.SEEK_CUR)
    if file.read(4) != SEGMENT:
        return None
    length = _ebml_size(file)
    return file.tell(), length


def _ebml_size(file: BinaryIO) -> int | None:
    """A number whose leading zero bits say how many bytes it takes; all ones means unknown."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    extra = 8 - first[0].bit_length()
    rest = file.read(extra)
    bits = 7 * (extra + 1)
    value = int.from_bytes(first + rest, "big") & ((1 << bits) - 1)
    return None if len(rest) < extra or value == (1 << bits) - 1 else value
