"""Whether a format that does not say how long it is ends inside one of its parts: a packet, a tag, a block, a frame.

Such a file was cut off, or its recorder was killed. One that ends between two parts may be whole: nobody can tell.
"""

import os
import struct
from pathlib import Path

from uepnet.video.containers import matroska_end

TAIL_BYTES = 1 << 20  # more than the parts of the formats below take
TRANSPORT_SIZES = ((188, 0), (192, 4))  # of a packet, and where its sync byte is: .ts, .m2ts
TRANSPORT_SYNC = 0x47
SEEN_PACKETS = 20  # so many sync bytes in a row are no accident
PACK = b"\0\0\1\xba"  # .mpg, .vob
FLV_TAGS = (8, 9, 18)  # sound, video, data


def ends_inside(path: Path) -> str | None:
    """In what the file ends, as the end of a sentence; None where it may be whole."""
    try:
        with path.open("rb") as file:
            head = file.read(16).ljust(16, b"\0")
            size = os.fstat(file.fileno()).st_size
            if head[:4] == b"\x1a\x45\xdf\xa3":
                end = matroska_end(file, size)
                return "a block" if end is not None and end > size else None
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read()
    except (OSError, struct.error, OverflowError):
        return None
    if head[:3] == b"FLV":
        return "a tag" if _inside_tag(tail) else None
    if head[:4] == PACK:
        return "a packet" if _inside_pack(tail) else None
    if head[:3] == b"\xff\xd8\xff" and path.suffix.lower() in (".mjpeg", ".mjpg"):  # else it may be a photograph
        return None if tail.rstrip(b"\0\xff\r\n").endswith(b"\xff\xd9") else "a frame"
    return "a packet" if _inside_transport_packet(head, tail) else None


def _inside_transport_packet(head: bytes, tail: bytes) -> bool:
    for size, sync in TRANSPORT_SIZES:
        last = tail[-size * SEEN_PACKETS :]
        for first in range(size if head[sync] == TRANSPORT_SYNC else 0):
            if all(byte == TRANSPORT_SYNC for byte in last[first::size]):
                return (len(last) - first + sync) % size != 0
    return False


def _inside_tag(tail: bytes) -> bool:
    """Every tag of an FLV is followed by its size."""
    if len(tail) < 28:
        return True
    length = int.from_bytes(tail[-4:])
    if length == 0 and len(tail) < TAIL_BYTES:
        return False  # a header alone
    tag = tail[-4 - length :]
    return not (len(tag) == length + 4 and tag[0] & 0x1F in FLV_TAGS and int.from_bytes(tag[1:4]) + 11 == length)


def _inside_pack(tail: bytes) -> bool:
    """From the last pack on, packet by packet."""
    at = tail.rfind(PACK)
    if at < 0 or len(tail) < at + 14:
        return at >= 0
    at += 12 if tail[at + 4] >> 4 == 2 else 14 + (tail[at + 13] & 7)  # MPEG-1, or MPEG-2 with stuffing
    while at < len(tail):
        start = tail[at : at + 6]
        if start[:4] == b"\0\0\1\xb9":
            return False  # the mark of the end
        if not b"\0\0\1".startswith(start[:3]) or (len(start) == 6 and start[3] < 0xBB):
            return False  # no packet: what follows is no part of the video
        at += 6 + (int.from_bytes(start[4:6]) if len(start) == 6 else 0)
    return at > len(tail)
