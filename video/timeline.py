"""Decoded frames -> what is seen at which second: pictures, and gaps where frames are lost."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from uepnet.model.errors import InputError
from uepnet.video.damage import Losses

if TYPE_CHECKING:
    import av

DAMAGED = "the frame is damaged"
SET_BACK_SECONDS = 1  # frames this much before the last one belong to another recording in the same file


class ShownTimes:
    """The times of frames of an AVI with B-frames. An AVI has no times of showing: a frame could get another's.

    Frames come in the order of showing, so each has the earliest time that no frame had before.
    """

    def __init__(self, stream: "av.VideoStream", format: str) -> None:
        self._needed = format == "avi" and stream.codec_context.has_b_frames
        self._times: list[int] = []

    def read(self, packet: "av.Packet[Any]") -> None:
        if self._needed and packet.size and packet.pts is not None:
            heappush(self._times, packet.pts)

    def refused(self, packet: "av.Packet[Any]") -> None:
        """No frame will come of it."""
        if packet.pts in self._times:
            self._times.remove(packet.pts)
            heapify(self._times)

    def correct(self, frame: "av.VideoFrame") -> "av.VideoFrame":
        if self._times:
            frame.pts = heappop(self._times)
        return frame


class Moment(NamedTuple):
    seconds: Fraction  # since the first frame
    frame: "av.VideoFrame | None"  # None for a gap
    gap: str = ""
    lasts: bool = False  # a gap without the number of frames that it took


def timeline(decoded: "Iterable[av.VideoFrame]", losses: Losses, rate: Fraction) -> Iterator[Moment]:
    """Pictures and gaps in the order of time. Raises what drawing the frames raises, after all that is known."""
    origin: Fraction | None = None
    seconds = Fraction(0)
    try:
        for frame in decoded:
            if frame.pts is None or not frame.time_base:  # raw streams carry no times: there is but the rate
                seconds = Fraction(0) if origin is None else seconds + 1 / rate
                origin = Fraction(0)
                losses.untimed()
                yield _seen(frame, seconds, losses, frame.is_corrupt)
                continue
            moment = frame.pts * frame.time_base
            if origin is not None and moment - origin < seconds - SET_BACK_SECONDS:
                losses.restart()  # joined recordings: the next one goes on where the last one ended
                origin = moment - seconds - 1 / rate
            origin = moment if origin is None else origin
            gaps = [Moment(lost - origin, None, DAMAGED) for lost in losses.before(moment)]
            pause = losses.pause(moment)
            if pause is not None:
                gaps.append(Moment(pause[0] - origin, None, f"there is no frame for {float(pause[1]):.1f} s", True))
            yield from sorted(gaps, key=lambda gap: gap.seconds)
            seconds = moment - origin
            yield _seen(frame, seconds, losses, losses.spoilt(moment) or frame.is_corrupt)
    except InputError:
        yield from _rest(losses, origin)
        raise
    yield from _rest(losses, origin)


def _seen(frame: "av.VideoFrame", seconds: Fraction, losses: Losses, damaged: bool) -> Moment:
    if not damaged:
        return Moment(seconds, frame)
    losses.count += 1
    return Moment(seconds, None, DAMAGED)


def _rest(losses: Losses, origin: Fraction | None) -> Iterator[Moment]:
    for lost in losses.rest():
        yield Moment(lost - (origin or 0), None, DAMAGED)
