"""An MP4 of the counted frames with heat map, zones, count and time, each shown at its own time.

Every frame is a fragment of the MP4: a player shows what was written so far even when the writer was killed. A
resumed recording writes a new part; `join_parts` makes one video of them.
"""

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.count import Count
from uepnet.model.errors import OutputError
from uepnet.model.outputs import is_regular, open_log, whole_file
from uepnet.model.render import overlay
from uepnet.model.zones import Zone
from uepnet.video.frames import reason

if TYPE_CHECKING:
    from av.container import OutputContainer

TICKS = 90_000  # per second; fine enough for every usual frame rate
FRAMES_PER_KEYFRAME = 25  # a player can jump there
PEOPLE_AT_TOP = 0.5  # of the colour scale, per cell of 8 x 8 pixels: crowds reach it, single people stay visible
NOTE = "uepnet"  # key of a part's note on itself, in the comment


class AnnotatedVideo:
    """Frames in, in order. The colour scale is fixed, so a colour means the same in every frame and every part."""

    def __init__(self, path: Path, zones: Sequence[Zone] = (), resume: bool = False) -> None:
        self.path = next_part(path) if resume and is_regular(path) else path
        self._first, self._zones = path, zones
        self._file: BinaryIO | None = None
        self._container: OutputContainer | None = None
        self._stream: av.VideoStream | None = None
        self._origin = Fraction(0)
        self._last_ticks = -1

    def write(self, image: NDArray[np.uint8], count: Count, timestamp: Fraction, label: str = "") -> None:
        """Draw the count onto the frame and append it; frames come in the order of time."""
        top = PEOPLE_AT_TOP * (count.cell / 8) ** 2
        drawn = overlay(image, count, self._zones, top, label)
        if self._stream is None:
            self._origin = timestamp
            self._stream = self._open(drawn)
        frame = av.VideoFrame.from_ndarray(_fitted(drawn, self._stream.width, self._stream.height))
        self._last_ticks = max(self._last_ticks + 1, round((timestamp - self._origin) * TICKS))
        frame.pts, frame.time_base = self._last_ticks, Fraction(1, TICKS)
        self._mux(frame)

    def close(self) -> None:
        if self._stream is None or self._container is None or self._file is None:
            return
        try:
            self._mux(None)
        finally:
            try:
                self._container.close()
            except (av.error.FFmpegError, OSError) as error:
                raise OutputError(f"{self.path} cannot be written to its end: {reason(error)}.") from None
            finally:
                self._file.close()

    def _open(self, first: NDArray[np.uint8]) -> av.VideoStream:
        self._file = open_log(self.path)
        options = {"movflags": "frag_every_frame+empty_moov+default_base_moof", "flush_packets": "1"}
        self._container = av.open(self._file, "w", format="mp4", options=options)
        note = {NOTE: {"part_of": self._first.name, "seconds": float(self._origin)}}
        self._container.metadata["comment"] = json.dumps(note)
        height, width = first.shape[:2]
        return _add_stream(self._container, width + width % 2, height + height % 2)  # 4:2:0 needs even sides

    def _mux(self, frame: av.VideoFrame | None) -> None:
        assert self._stream is not None and self._container is not None
        try:
            self._container.mux(self._stream.encode(frame))
        except (av.error.FFmpegError, OSError) as error:
            raise OutputError(f"{self.path} cannot be written further: {reason(error)}.") from None


def _add_stream(container: "OutputContainer", width: int, height: int) -> av.VideoStream:
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    stream = cast(av.VideoStream, container.add_stream(codec, rate=25))
    stream.width, stream.height = width, height
    stream.pix_fmt = "yuv420p"
    stream.codec_context.time_base = Fraction(1, TICKS)
    stream.codec_context.gop_size = FRAMES_PER_KEYFRAME
    stream.codec_context.max_b_frames = 0  # with them a frame would wait for later ones
    if codec == "libx264":
        # No look-ahead: a frame is in the file soon after it was counted.
        stream.options = {"preset": "veryfast", "tune": "zerolatency", "crf": "23"}
    return stream


def next_part(path: Path) -> Path:
    """Where the frames of a resumed recording go: counts.mp4, then counts-2.mp4, counts-3.mp4, ..."""
    part, number = path, 1
    while part.exists():
        number += 1
        part = path.with_stem(f"{path.stem}-{number}")
    return part


def is_annotated(path: Path) -> bool:
    """Whether a file is an annotated video of this name, which may be continued; an empty one was being begun."""
    return path.is_file() and (not path.stat().st_size or _seconds(path, path.name) is not None)


def join_parts(path: Path, last: Path) -> bool:
    """Make one video of `path` and its later parts up to `last`, and remove those. False where they do not fit.

    Only parts whose note says that they continue `path` are joined; other files stay as they are.
    """
    places = [path]
    number = 2
    while places[-1] != last and number < 10_000:
        places.append(path.with_stem(f"{path.stem}-{number}"))
        number += 1
    parts = [(place, seconds) for place in places if (seconds := _seconds(place, path.name)) is not None]
    if len(parts) < 2 or parts[0][0] != path:
        return False
    try:
        with whole_file(path) as file, av.open(file, "w", format="mp4") as joined:
            _copy(parts, joined)
    except av.error.FFmpegError:
        return False
    for place, _ in parts[1:]:
        place.unlink()
    return True


def _copy(parts: Sequence[tuple[Path, float]], joined: "OutputContainer") -> None:
    """The packets of all parts as they are, each part moved to its own time."""
    stream: av.VideoStream | None = None
    newest = -1
    for place, seconds in parts:
        with av.open(f"file:{place}", metadata_errors="replace") as part:
            source = part.streams.video[0]
            if stream is None:
                stream = joined.add_stream_from_template(source)
                note = {NOTE: {"part_of": parts[0][0].name, "seconds": seconds}}
                joined.metadata["comment"] = json.dumps(note)
            offset = Fraction(seconds) - Fraction(parts[0][1])
            for packet in part.demux(source):
                if packet.dts is None or packet.pts is None:
                    continue
                moment = packet.pts * packet.time_base + offset
                newest = max(newest + 1, round(moment * TICKS))
                packet.pts = packet.dts = newest  # no frame waits for a later one: the two are equal
                packet.time_base = Fraction(1, TICKS)
                packet.stream = stream
                joined.mux(packet)


def _seconds(place: Path, name: str) -> float | None:
    """The time in the recording at which a part begins; None where it is no part of that video."""
    try:
        with av.open(f"file:{place}", metadata_errors="replace") as part:
            note = json.loads(part.metadata.get("comment", "{}")).get(NOTE, {})
            return float(note["seconds"]) if note.get("part_of") == name else None
    except (av.error.FFmpegError, OSError, ValueError, AttributeError, KeyError, TypeError):
        return None


def _fitted(image: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """The picture in the middle of a canvas of this size, made smaller where it is larger."""
    if image.shape[:2] == (height, width):
        return image
    picture = Image.fromarray(image)
    picture.thumbnail((width, height))
    canvas = Image.new("RGB", (width, height))
    canvas.paste(picture, ((width - picture.width) // 2, (height - picture.height) // 2))
    return np.asarray(canvas)
