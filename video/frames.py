"""Where frames come from: a video file or a folder of images, each frame with its number and exact time.

A source yields every frame in order; `Choice` says which are counted. A frame's picture is converted only when it
is used, so frames that are skipped cost little. Live sources are in `live.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from uepnet.model.errors import InputError
from uepnet.model.file_names import IMAGE_SUFFIXES, natural
from uepnet.model.image import read_file
from uepnet.video.addresses import is_address, shown
from uepnet.video.containers import lacks_index
from uepnet.video.damage import Losses
from uepnet.video.deinterlace import Mode, deinterlaced
from uepnet.video.ends import Promise, cut_off
from uepnet.video.timeline import ShownTimes, timeline

if TYPE_CHECKING:
    import av

Picture = bytes | NDArray[np.uint8]  # an encoded image, or RGB [height, width, 3]
STANDARD_INPUT = "-"
TEXT_CODECS = ("ansi", "bintext", "idf", "xbin")


@dataclass(frozen=True, slots=True)
class Frame:
    number: int  # from 0, in the order of showing
    timestamp: Fraction  # seconds since the first frame; of a live source, since 1970
    picture: Callable[[], Picture]
    time: datetime | None = None  # on the clock: when it arrived, of a live source
    dropped: int = 0  # of a live source: frames skipped since the last one counted


@dataclass(frozen=True, slots=True)
class Gap:
    """Nothing is known here: a damaged frame, a lost stream. It is never a count of zero."""

    number: int  # of the damaged frame; of a lost stream, of the frame that comes next
    timestamp: Fraction
    reason: str
    time: datetime | None = None
    lasts: bool = False  # a time without frames, longer than a frame: it is told whichever frames are chosen


class Damaged(InputError):
    """The source was cut off, or parts of it could not be decoded. All other frames were yielded."""


class Source(Protocol):
    live: bool
    expected: int | None  # about how many frames there are, for a progress bar

    def frames(self) -> Iterator[Frame | Gap]: ...

    def stop(self) -> None:
        """End `frames` soon. It may be called from another thread than the one that draws the frames."""


@dataclass
class Choice:
    """Which frames are counted: every n-th, or at most `fps` per second, from `start` until before `end`.

    `fps` divides time into slots and takes the first frame of each, so that frames at irregular times (variable
    frame rate) are counted evenly. Pass it frames in order, once.
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
        """The chosen ones. A damaged frame is a gap only where its slot has no other frame."""
        held: Gap | None = None
        for frame in frames:
            if self.over(frame.timestamp):
                break
            if held is not None and self._is_later(frame, held):
                yield held
                held = None
            if self.fps is not None and isinstance(frame, Gap) and not frame.lasts:
                free = frame.timestamp >= self.start and int(frame.timestamp * self.fps) > self._slot
                held = held or (frame if free else None)
                continue
            lasting = isinstance(frame, Gap) and frame.lasts and frame.timestamp >= self.start
            if lasting or self.wants(frame.number, frame.timestamp):
                held = held if lasting else None
                yield frame
        if held is not None:
            yield held

    def _is_later(self, frame: Frame | Gap, held: Gap) -> bool:
        """Whether it belongs to a later slot."""
        return self.fps is not None and int(frame.timestamp * self.fps) > int(held.timestamp * self.fps)


class Folder:
    """Images as frames, in natural order of their names; one that cannot be read becomes a gap when counted."""

    live = False

    def __init__(self, path: Path, rate: Fraction = Fraction(25)) -> None:
        try:
            names = [entry.name for entry in path.iterdir() if entry.suffix.lower() in IMAGE_SUFFIXES]
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from None
        self._path, self._rate = path, rate
        self._names = sorted((name for name in names if not name.startswith(".")), key=natural)
        if not self._names:
            raise InputError(f"{path} holds no images: a folder of frames has files such as .jpg and .png.")
        self.expected: int | None = len(self._names)

    def frames(self) -> Iterator[Frame]:
        for number, name in enumerate(self._names):
            yield Frame(number, number / self._rate, partial(read_file, self._path / name, "the file"))

    def stop(self) -> None:
        pass


class VideoFile:
    """A video that has an end: every frame in order, at its own time, upright, without interlacing."""

    live = False

    def __init__(self, path: str, deinterlace: Mode = "auto") -> None:
        import av

        self._name = shown(path)
        self._deinterlace: Mode = deinterlace
        self._stopped = False
        self._file = None if is_address(path) or path == STANDARD_INPUT else Path(path)
        try:
            self._container = av.open(self._address(path), metadata_errors="replace")
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise InputError(self._unreadable(reason(error))) from None
        stream = self._container.streams.best("video")
        if stream is None or not _is_video(cast("av.VideoStream", stream)):
            self._container.close()
            raise InputError(f"{self._name} holds no video.")
        if cast("av.CodecContext | None", stream.codec_context) is None:
            self._container.close()
            raise InputError(self._unreadable("there is no decoder for its codec"))
        self._stream = cast("av.VideoStream", stream)
        self._rate = stream.average_rate or stream.guessed_rate or Fraction(25)
        self._promise = Promise(self._container, self._stream, self._rate, self._file)
        self.expected: int | None = stream.frames or int((self._promise.seconds or 0) * self._rate) or None

    def frames(self) -> Iterator[Frame | Gap]:
        """All frames, and gaps for those that are lost; raises Damaged at the end where some are missing."""
        losses = Losses(self._stream.codec_context.name, self._container.format.name, self._rate)
        decoded = deinterlaced(self._decoded(losses), self._deinterlace)
        shown = False
        try:
            for number, (seconds, frame, gap, lasts) in enumerate(timeline(decoded, losses, self._rate)):
                shown = shown or frame is not None
                if frame is None:
                    yield Gap(number, seconds, gap, lasts=lasts)
                else:
                    yield Frame(number, seconds, partial(upright, frame))
            if losses.count:
                raise Damaged(f"{self._name} is damaged: {losses.count} of its frames could not be decoded.")
        except Damaged as error:
            if shown:
                raise
            raise InputError(f"{str(error).rstrip('.')}; no frame of it can be read.") from None
        if not shown and not self._stopped:
            raise InputError(f"{self._name} is not a video that can be read (no frame of it can be decoded).")

    def stop(self) -> None:
        self._stopped = True  # the container is closed by the thread that reads it

    def _address(self, path: str) -> str:
        if path == STANDARD_INPUT:
            self._name = "standard input"
            return "pipe:0"
        if self._file is None:
            return path
        if self._file.exists() and not self._file.is_file() and not path.startswith("/dev/fd/"):
            raise InputError(f"{self._name} is a device or a pipe, not a video file (use - for standard input).")
        return f"file:{path}"

    def _unreadable(self, why: str) -> str:
        if self._file is not None and self._file.is_file() and not self._file.stat().st_size:
            return f"{self._name} is empty."
        if self._file is not None and lacks_index(self._file):
            return f"{self._name} was never finished: the recording ended before its index (moov) was written."
        if self._file is not None and (end := cut_off(self._file)):
            return f"{self._name} {end}; no frame of it can be read."
        return f"{self._name} is not a video that can be read ({why})."

    def _decoded(self, losses: Losses) -> "Iterator[av.VideoFrame]":
        """Frames in the order of showing; what cannot be decoded is left out, and noted in `losses`."""
        from av.error import FFmpegError

        times = ShownTimes(self._stream, self._container.format.name)
        try:
            with self._container:
                for packet in self._container.demux():
                    if self._stopped:
                        return
                    of_video = packet.stream is self._stream
                    self._promise.read(packet, of_video)
                    losses.read(packet, of_video)
                    if not of_video:
                        continue
                    times.read(packet)
                    try:
                        yield from map(times.correct, cast("list[av.VideoFrame]", packet.decode()))
                    except FFmpegError:
                        losses.refused(packet)
                        times.refused(packet)
        except FFmpegError as error:
            raise Damaged(f"{self._name} breaks off: {reason(error)}.") from None
        wrong = self._promise.broken(losses.torn)
        if wrong is not None:
            raise Damaged(f"{self._name} {wrong}.")


def _is_video(stream: "av.VideoStream") -> bool:
    """Whether it moves: no cover of a song, and no text, which FFmpeg would show as on an old terminal."""
    from av.stream import Disposition

    codec = stream.codec_context.name if stream.codec_context else ""  # None where it cannot be decoded
    return not stream.disposition & Disposition.attached_pic and codec not in TEXT_CODECS


def upright(frame: "av.VideoFrame") -> NDArray[np.uint8]:
    """RGB [height, width, 3], turned as the recording phone or camera says."""
    image = cast(NDArray[np.uint8], frame.to_ndarray(format="rgb24"))
    quarter_turns = round(frame.rotation / 90) % 4  # anticlockwise, as rot90 turns
    return np.ascontiguousarray(np.rot90(image, quarter_turns)) if quarter_turns else image


def reason(error: Exception) -> str:
    """A library's reason without the address: that may hold a password."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:1].lower() + text[1:].rstrip(".")
