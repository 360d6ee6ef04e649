"""An MP4 of the counted frames with heat map, zones and count, each shown at its own time.

Every frame is a fragment of the MP4: a player shows what was written so far even when the writer was killed.
"""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.count import Count
from uepnet.model.errors import OutputError
from uepnet.model.render import overlay, scale_top
from uepnet.model.zones import Zone
from uepnet.service.frames import reason

TICKS = 90_000  # a second; fine enough for every usual frame rate
FRAMES_PER_KEYFRAME = 25  # a player can jump there


class AnnotatedVideo:
    """Frames in, in order. Size and colour scale are the first frame's: a colour means the same throughout."""

    def __init__(self, path: Path, zones: Sequence[Zone] = ()) -> None:
        self._path, self._zones = path, zones
        self._stream: av.VideoStream | None = None
        self._top = 0.0
        self._origin = Fraction(0)
        self._last_ticks = -1
        options = {"movflags": "frag_every_frame+empty_moov+default_base_moof", "flush_packets": "1"}
        try:
            path.open("wb").close()  # the library would find out only at the first frame
            self._container = av.open(f"file:{path}", "w", format="mp4", options=options)
        except (av.error.FFmpegError, OSError) as error:
            raise OutputError(f"{path} cannot be written: {reason(error)}.") from None

    def write(self, image: NDArray[np.uint8], count: Count, timestamp: Fraction) -> None:
        """Draw the count onto the frame and append it; frames come in the order of time."""
        self._top = self._top or scale_top(count.count_map)
        drawn = overlay(image, count, self._zones, self._top)
        if self._stream is None:
            self._origin = timestamp
            self._stream = self._add_stream(drawn)
        frame = av.VideoFrame.from_ndarray(_fitted(drawn, self._stream.width, self._stream.height))
        self._last_ticks = max(self._last_ticks + 1, round((timestamp - self._origin) * TICKS))
        frame.pts, frame.time_base = self._last_ticks, Fraction(1, TICKS)
        self._mux(frame)

    def close(self) -> None:
        if self._stream is not None:
            self._mux(None)
        try:
            self._container.close()
        except (av.error.FFmpegError, OSError) as error:
            raise OutputError(f"{self._path} cannot be written to its end: {reason(error)}.") from None
        if self._stream is None and self._path.is_file():
            self._path.unlink()  # no player would open it

    def _add_stream(self, first: NDArray[np.uint8]) -> av.VideoStream:
        codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
        stream = cast(av.VideoStream, self._container.add_stream(codec, rate=25))
        height, width = first.shape[:2]
        stream.width, stream.height = width + width % 2, height + height % 2  # 4:2:0 needs even sides
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, TICKS)
        stream.codec_context.gop_size = FRAMES_PER_KEYFRAME
        stream.codec_context.max_b_frames = 0  # with them a frame would wait for later ones
        if codec == "libx264":
            # No look-ahead: a frame is in the file soon after it was counted.
            stream.options = {"preset": "veryfast", "tune": "zerolatency", "crf": "23"}
        return stream

    def _mux(self, frame: av.VideoFrame | None) -> None:
        assert self._stream is not None
        try:
            self._container.mux(self._stream.encode(frame))
        except (av.error.FFmpegError, OSError) as error:
            raise OutputError(f"{self._path} cannot be written further: {reason(error)}.") from None


def next_part(path: Path) -> Path:
    """Where the picture of a resumed recording goes: counts.mp4, then counts-2.mp4, counts-3.mp4, ..."""
    part, number = path, 1
    while part.exists():
        number += 1
        part = path.with_stem(f"{path.stem}-{number}")
    return part


def _fitted(image: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """The picture in the middle of a canvas of this size, made smaller where it is larger."""
    if image.shape[:2] == (height, width):
        return image
    picture = Image.fromarray(image)
    picture.thumbnail((width, height))
    canvas = Image.new("RGB", (width, height))
    canvas.paste(picture, ((width - picture.width) // 2, (height - picture.height) // 2))
    return np.asarray(canvas)
