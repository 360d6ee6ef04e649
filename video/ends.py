"""Whether a video file ends where its container says: in bytes, in seconds, in frames, or by a mark."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uepnet.video.containers import declared_bytes, lacks_end, lost_fragments, unfinished
from uepnet.video.last_unit import ends_inside

if TYPE_CHECKING:
    import av
    from av.container import InputContainer

COUNTED_FORMATS = ("gif", "ivf")  # their headers say how many frames there are
FORMATS_WITH_TIME_OF_END = ("matroska", "asf", "nut")  # what FFmpeg gives as their duration is the time of the end
RAW_FORMATS = ("yuv4mpegpipe", "dv")  # in them all frames take as many bytes as the first
EVEN_FORMATS = ("mxf",)  # in them every frame takes the same time


class Promise:
    """What the header of a file says about its end."""

    def __init__(
        self, container: "InputContainer", stream: "av.VideoStream", rate: Fraction, file: Path | None
    ) -> None:
        import av

        duration = container.duration
        self.seconds = Fraction(duration, av.time_base) if duration and duration > 0 else None
        self._start = Fraction(container.start_time or 0, av.time_base)
        self._rate, self._file, self._format = rate, file, container.format.name
        self._end = self._video_end = Fraction(0)  # of the last packet of any stream, and of the video
        self._packets = 0  # of the video
        self._frame_bytes = 0  # of the first frame
        self._rest = 0  # bytes after the last whole frame, where all have one size
        self._frames = 0  # where the header can be relied on
        if self._format in COUNTED_FORMATS:
            self._frames = stream.frames
        elif self._format in EVEN_FORMATS and self.seconds is not None:
            self._frames = int(self.seconds * rate)

    def read(self, packet: "av.Packet[Any]", of_video: bool) -> None:
        """A packet of any stream, in the order of the file."""
        if packet.pts is not None and packet.time_base:
            end = (packet.pts + (packet.duration or 0)) * packet.time_base
            self._end = max(self._end, end)
            self._video_end = max(self._video_end, end) if of_video else self._video_end
        if not of_video or not packet.size:
            return
        self._packets += 1
        self._frame_bytes = self._frame_bytes or packet.size
        if self._format in RAW_FORMATS and self._file is not None and packet.pos is not None:
            self._rest = self._file.stat().st_size - packet.pos - self._frame_bytes

    def broken(self, torn: bool) -> str | None:
        """What is wrong with the file, after all packets.

        `torn` is whether it has bytes that no packet claims. An AVI has no times: what is lost makes it end earlier.
        """
        indexed = "mov" in self._format  # it lists all frames: whole in bytes, it is whole
        wrong = cut_off(self._file, self._missing(self._end), indexed)
        if wrong is None and self._packets < self._frames:
            return f"is damaged: {self._frames - self._packets} of its {self._frames} frames are missing"
        if wrong is None and torn and self._format == "avi" and self.seconds is not None:
            lost = round((self.seconds - self._video_end) * self._rate)
            if lost > 0:
                return f"is damaged: {lost} of its {round(self.seconds * self._rate)} frames are missing"
        if wrong is None and self._rest:
            return "is cut off: it ends in the middle of a frame"
        return wrong

    def _missing(self, end: Fraction) -> Fraction:
        """Seconds between the last packet of any stream and the end that the header promised."""
        if self.seconds is None:
            return Fraction(0)
        promised = self._start + self.seconds
        if self._start > 0 and any(name in self._format for name in FORMATS_WITH_TIME_OF_END):
            promised = self.seconds  # of a segment of a longer recording
        slack = Fraction(1, 2) + 2 / self._rate  # durations are often rounded, or count the last frame twice
        return promised - end if promised - end > slack else Fraction(0)


def cut_off(file: Path | None, missing_seconds: Fraction = Fraction(0), indexed: bool = True) -> str | None:
    """What is wrong with the end of a file in bytes, or, where it is not indexed, in seconds."""
    declared = None if file is None else declared_bytes(file)
    seconds = f"the last {float(missing_seconds):.1f} seconds are missing"
    if declared is not None and file is not None:
        size = file.stat().st_size
        if size < declared:
            return f"is cut off: {seconds if missing_seconds else _missing_share(size, declared)}"
    if missing_seconds and not (indexed and declared is not None):
        return f"is {'cut off' if declared is None else 'damaged'}: {seconds}"
    if file is None:
        return None
    if unfinished(file):
        return "was never finished: the recording ended before its index was written; its end may be missing"
    damaged_from = lost_fragments(file)
    if damaged_from is not None:
        return f"is damaged: what follows its first {damaged_from:,} bytes cannot be read"
    if lacks_end(file):
        return "is cut off: it lacks the mark at its end"
    unit = ends_inside(file)
    return None if unit is None else f"is cut off: it ends in the middle of {unit}"


def _missing_share(size: int, declared: int) -> str:
    missing = declared - size
    if missing < declared / 100:
        return f"its last {missing:,} bytes are missing" if missing > 1 else "its last byte is missing"
    return f"{missing / declared:.0%} of it is missing"
