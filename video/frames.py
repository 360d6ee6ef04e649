"""Where frames come from: a video file or a folder of pictures, each frame with its number and exact time.

A source yields every frame in order; `Choice` says which are counted. A frame's picture is made only when it
is asked for, so frames that are passed over cost no conversion. Live sources are in `live.py`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from uepnet.model.errors import InputError

if TYPE_CHECKING:
    import av

Picture = bytes | NDArray[np.uint8]  # an encoded image, or RGB [height, width, 3]
PICTURE_SUFFIXES = frozenset((".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
DAMAGED = "the frame is damaged"


@dataclass(frozen=True, slots=True)
class Frame:
    number: int  # from 0, in the order of showing
    timestamp: Fraction  # seconds since the first frame; of a live source, since 1970
    picture: Callable[[], Picture]
    time: datetime | None = None  # of a live source: when it arrived
    dropped: int = 0  # of a live source: frames passed over since the last one taken


@dataclass(frozen=True, slots=True)
class Gap:
    """Nothing is known here: a damaged frame, a lost stream. Never a count of zero."""

    number: int  # of the damaged frame; of a lost stream, of the frame that comes next
    timestamp: Fraction
    reason: str
    time: datetime | None = None


class Damaged(InputError):
    """The source ended before its end, or parts of it could not be decoded; what could be was yielded."""


class Source(Protocol):
    live: bool
    expected: int | None  # about how many frames there are, for a progress bar

    def frames(self) -> Iterator[Frame | Gap]: ...

    def stop(self) -> None:
        """End `frames` soon. It may be called from another thread than the one that draws the frames."""


@dataclass
class Choice:
    """Which frames are counted: every n-th, or at most `fps` a second, from `start` until before `end`.

    `fps` lays a grid over time and takes the first frame in each slot of it, so frames at odd times (variable
    frame rate) neither drift nor bunch. Feed it frames in order, once.
    """

    every: int = 1
    fps: Fraction | None = None
    start: Fraction = Fraction(0)
    end: Fraction | None = None
    _slot: int = field(default=-1, init=False)

    def over(self, seconds: Fraction) -> bool:
        return self.end is not None and seconds >= self.end

    def wants(self, number: int, seconds: Fraction) -> bool:
        if seconds < self.start or self.over(seconds):
            return False
        if self.fps is None:
            return number % self.every == 0
        slot = int(seconds * self.fps)
        if slot <= self._slot:
            return False
        self._slot = slot
        return True

    def of(self, frames: Iterator[Frame | Gap]) -> Iterator[Frame | Gap]:
        for frame in frames:
            if self.over(frame.timestamp):
                return
            if self.wants(frame.number, frame.timestamp):
                yield frame


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key under which frame2 comes before frame10."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part]


class Folder:
    """Pictures as frames, sorted naturally by name; one that cannot be read becomes a gap when counted."""

    live = False

    def __init__(self, path: Path, rate: Fraction = Fraction(25)) -> None:
        names = (entry.name for entry in path.iterdir() if entry.suffix.lower() in PICTURE_SUFFIXES)
        self._path, self._rate = path, rate
        self._names = sorted((name for name in names if not name.startswith(".")), key=natural)
        if not self._names:
            raise InputError(f"{path} holds no pictures: a folder of frames has .jpg, .png or such in it.")
        self.expected: int | None = len(self._names)

    def frames(self) -> Iterator[Frame]:
        for number, name in enumerate(self._names):
            yield Frame(number, number / self._rate, (self._path / name).read_bytes)

    def stop(self) -> None:
        pass


class VideoFile:
    """A video that has an end: every frame in order, at its own time, upright."""

    live = False

    def __init__(self, path: str) -> None:
        import av

        self._name = shown(path)
        self._stopped = False
        try:
            self._container = av.open(path if "://" in path else f"file:{path}")
        except (av.error.FFmpegError, OSError) as error:
            raise InputError(f"{self._name} is not a video that can be read ({reason(error)}).") from None
        stream = self._container.streams.best("video")
        if stream is None:
            self._container.close()
            raise InputError(f"{self._name} holds no video.")
        self._stream = cast("av.VideoStream", stream)
        duration = self._container.duration
        self._start = Fraction(self._container.start_time or 0, av.time_base)
        self._declared = None if duration is None else Fraction(duration, av.time_base)
        self._rate = stream.average_rate or stream.guessed_rate or Fraction(25)
        about = None if self._declared is None else int(self._declared * self._rate)
        self.expected: int | None = stream.frames or about

    def frames(self) -> Iterator[Frame | Gap]:
        """All frames; at the end raises Damaged where some could not be had."""
        origin, seconds = None, Fraction(0)
        for number, decoded in enumerate(self._decoded()):
            if decoded.pts is not None and decoded.time_base is not None:
                origin = decoded.pts * decoded.time_base if origin is None else origin
                seconds = decoded.pts * decoded.time_base - origin
            elif number:  # raw streams carry no times: the frame rate is all there is
                seconds += 1 / self._rate
            if decoded.is_corrupt:
                yield Gap(number, seconds, DAMAGED)
            else:
                yield Frame(number, seconds, partial(upright, decoded))

    def stop(self) -> None:
        self._stopped = True  # the container is closed by the thread that reads it

    def _decoded(self) -> "Iterator[av.VideoFrame]":
        """Frames in the order of showing. A packet that cannot be decoded is left out, and told."""
        from av.error import FFmpegError

        damaged, end = 0, Fraction(0)
        try:
            with self._container:
                for packet in self._container.demux():
                    if self._stopped:
                        return
                    if packet.pts is not None and packet.time_base is not None:
                        end = max(end, (packet.pts + (packet.duration or 0)) * packet.time_base)
                    if packet.stream is not self._stream:
                        continue
                    try:
                        yield from cast("list[av.VideoFrame]", packet.decode())
                    except FFmpegError:
                        damaged += 1
        except FFmpegError as error:
            raise Damaged(f"{self._name} breaks off: {reason(error)}.") from None
        missing = self._missing(end)
        if missing > 0:
            raise Damaged(f"{self._name} is cut off: the last {float(missing):.1f} seconds are missing.")
        if damaged:
            raise Damaged(f"{self._name} is damaged: {damaged} of its packets could not be decoded.")

    def _missing(self, end: Fraction) -> Fraction:
        """Seconds between the last packet of any stream and the end that the header promised."""
        if self._declared is None:
            return Fraction(0)
        missing = self._start + self._declared - end
        slack = Fraction(1, 2) + 2 / self._rate  # durations are often rounded, or count the last frame twice
        return missing if missing > slack else Fraction(0)


def upright(frame: "av.VideoFrame") -> NDArray[np.uint8]:
    """RGB [height, width, 3], turned as the recording phone or camera says."""
    image = cast(NDArray[np.uint8], frame.to_ndarray(format="rgb24"))
    quarter_turns = round(frame.rotation / 90) % 4  # anticlockwise, as rot90 turns
    return np.ascontiguousarray(np.rot90(image, quarter_turns)) if quarter_turns else image


def reason(error: Exception) -> str:
    """A library's reason without the address: that may hold a password."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:1].lower() + text[1:].rstrip(".")


def shown(address: str) -> str:
    """A name or address fit to be shown: without user and password."""
    parts = urlsplit(address) if "://" in address else None
    if parts is None or "@" not in parts.netloc:
        return address
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
