"""What of a video file is lost in the middle: packets that gave no frame, bytes that no packet claims.

A decoder says little about what it leaves out. In a sound file every packet gives a frame at its own time, and packets
follow each other without holes. What breaks this is lost. (Whether the end is missing: `ends.py`.)
"""

from collections import deque
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import av

PAUSE_SECONDS = 5.0  # so long without a frame is a gap, unless frames are always that far apart
HOLE_BYTES = 1024  # between two packets; what the formats below put there is smaller
SKIPPED_BYTES = 8  # what an AVI holds for every tick of its clock at which no frame is shown
DENSE_FORMATS = ("matroska", "flv", "avi")  # in them one packet follows another
SHOWING_CODECS = ("hevc", "av1", "libdav1d")  # every sound packet of these shows a frame
HIDING_CODECS = ("vp8", "mpeg4", "msmpeg4v3")  # sound packets of these may show none


class Losses:
    """Follows the packets of one video through its decoder, in seconds on the file's own clock."""

    def __init__(self, codec: str, format: str, rate: Fraction) -> None:
        self.count = 0  # frames that were not decoded
        self.torn = False  # whether there are bytes that no packet claims
        self._hides = codec in HIDING_CODECS
        self._dense = any(name in format for name in DENSE_FORMATS)
        self._skips = format == "avi"
        self._step = 1 / rate
        self._waiting: dict[Fraction, bool] = {}  # sent to the decoder, not shown yet -> whether it was refused
        self._untimed = 0  # packets of a raw stream, each of which shows a frame, that are not shown yet
        self._spoilt: set[Fraction] = set()
        self._shows = self._refused = codec in SHOWING_CODECS
        self._holes: deque[Fraction] = deque()
        self._end_of_last: tuple[int, int] | None = None  # position of the last packet, and where it ends
        self._in_hole = False
        self._ticks = 0  # when the last packet of the video was
        self._shown: Fraction | None = None
        self._steps: deque[float] = deque(maxlen=49)

    def read(self, packet: "av.Packet[Any]", of_video: bool) -> None:
        """A packet of any stream, in the order of the file."""
        self._find_hole(packet, of_video)
        if not of_video or not packet.size or packet.is_discard:
            return
        if packet.pts is None:
            self._untimed += self._shows
            return
        moment = packet.pts * packet.time_base
        self._waiting[moment] = False
        if packet.is_corrupt:
            self._spoilt.add(moment)
        if self._in_hole:
            self._holes.append(moment)
            self._in_hole = False

    def refused(self, packet: "av.Packet[Any]") -> None:
        """The decoder found no picture in it."""
        self._refused = True
        if packet.pts is None:
            self.count += 1
            self._untimed -= self._shows
        else:
            self._waiting[packet.pts * packet.time_base] = True

    def before(self, moment: Fraction) -> list[Fraction]:
        """The moments of lost frames before the frame that is shown now."""
        self._waiting.pop(moment, None)
        earlier = sorted(other for other in self._waiting if other < moment)
        lost = [other for other in earlier if self._is_lost(other)]
        self.count += len(lost)
        if self._shown is None:  # before the first frame there is no time yet: what was refused is only counted
            self.count += sum(self._waiting[other] for other in earlier)
        for other in earlier:
            del self._waiting[other]
        return lost

    def rest(self) -> list[Fraction]:
        """The same at the end of the file."""
        last = (self._shown or 0) + PAUSE_SECONDS + 3 * len(self._waiting) * self._step  # beyond: no real time
        lost = sorted(moment for moment in self._waiting if moment < last and self._is_lost(moment))
        self.count += len(lost) + max(0, self._untimed)
        return lost

    def untimed(self) -> None:
        """A frame without a time is shown."""
        self._untimed -= self._shows

    def restart(self) -> None:
        """The file's clock was set back: what waits belongs to another part of the file."""
        self._waiting.clear()
        self._holes.clear()
        self._shown = None

    def spoilt(self, moment: Fraction) -> bool:
        """Whether the packet of this frame arrived incomplete."""
        found = moment in self._spoilt
        self._spoilt.discard(moment)
        return found

    def pause(self, moment: Fraction) -> tuple[Fraction, Fraction] | None:
        """Where the time before the frame that is shown now is a gap: when it began, and how many seconds it took."""
        before, self._shown = self._shown, moment
        if before is None or moment <= before:
            return None
        step = moment - before
        usual = median(self._steps or [float(step)])
        self._steps.append(float(step))
        torn = bool(self._holes) and self._holes[0] <= moment + 1 and step > self._step * 3 / 2
        while self._holes and self._holes[0] <= moment:
            self._holes.popleft()
        if torn:
            self.count += max(1, round(step / self._step) - 1)
        if torn or step > max(PAUSE_SECONDS, 3 * usual):
            return before + min(Fraction(usual).limit_denominator(100_000), step), step
        return None

    def _is_lost(self, moment: Fraction) -> bool:
        """What was refused; after that also what was left out without a word, as later frames build on it."""
        if self._shown is None or moment <= self._shown:  # before the first key frame
            return False
        return self._waiting[moment] or (self._refused and not self._hides)

    def _find_hole(self, packet: "av.Packet[Any]", of_video: bool) -> None:
        if not self._dense or packet.pos is None or packet.pos < 0 or not packet.size:
            return
        if self._end_of_last is not None:
            position, end = self._end_of_last
            if packet.pos == position:  # several packets in one block
                self._end_of_last = position, end + packet.size
                return
            ticks = (packet.dts or 0) - self._ticks if of_video and self._skips else 0
            if packet.pos - end > HOLE_BYTES + SKIPPED_BYTES * max(0, ticks):
                self.torn = self._in_hole = True
        if of_video:
            self._ticks = packet.dts or 0
        self._end_of_last = packet.pos, packet.pos + packet.size
