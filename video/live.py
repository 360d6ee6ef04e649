"""Live sources: a camera or a stream, of which always the newest frame is counted.

A thread reads frames as they come and leaves the newest in a mailbox, from which it is taken when the one before is
counted. Frames that were replaced there are counted as dropped. A lost stream leaves one gap and is opened again,
first after a second, then at growing intervals.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, cast

from uepnet.model.errors import InputError
from uepnet.video.addresses import shown
from uepnet.video.deinterlace import Mode, deinterlaced
from uepnet.video.frames import Choice, Frame, Gap, reason, upright

if TYPE_CHECKING:
    import av
    from av.container import InputContainer

OPEN_SECONDS = 15.0  # until a camera has answered
SILENCE_SECONDS = 10.0  # without a frame a stream counts as lost
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 30.0


class Mailbox:
    """Holds the newest frame. Gaps, and the failure that ends all, are never overwritten."""

    def __init__(self) -> None:
        self._items: deque[Frame | Gap] = deque()
        self._failure: InputError | None = None
        self._changed = Condition()

    def put(self, item: Frame | Gap) -> None:
        with self._changed:
            newest = self._items[-1] if self._items else None
            if isinstance(item, Frame) and isinstance(newest, Frame):
                self._items[-1] = replace(item, dropped=newest.dropped + 1)
            else:
                self._items.append(item)
            self._changed.notify()

    def fail(self, error: InputError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify()

    def take(self, seconds: float) -> Frame | Gap | None:
        """The oldest item that was not taken yet; None where nothing came within the time."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._failure, seconds)
            if self._items:
                return self._items.popleft()
            if self._failure:
                raise self._failure
            return None


@dataclass
class Live:
    """A camera (`/dev/video0`, format v4l2) or the address of a stream. Times are this machine's clock."""

    address: str
    choice: Choice
    format: str | None = None
    deinterlace: Mode = "auto"
    retry: bool = True  # also where the first opening fails
    notify: Callable[[str], None] = lambda text: None  # called in the reading thread when the stream is lost or back
    first_retry_seconds: float = FIRST_RETRY_SECONDS
    silence_seconds: float = SILENCE_SECONDS
    live: bool = field(default=True, init=False)
    expected: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._name = shown(self.address)
        self._mailbox = Mailbox()
        self._stop = Event()
        self._number = 0
        self._began = time.monotonic()

    def frames(self) -> Iterator[Frame | Gap]:
        """Newest frames and gaps, until the chosen end or stop(); without `retry` raises if the first opening fails."""
        self._began = time.monotonic()
        reader = Thread(target=self._read, name="stream-reader", daemon=True)
        reader.start()
        while not self._stop.is_set() and not self.choice.over(self._seconds()):
            ended = not reader.is_alive()  # asked first: what it left in the mailbox is taken below
            item = self._mailbox.take(0.2)
            if item is not None:
                yield item
            elif ended and not self._stop.is_set():
                # A fault of ours, which Python has printed; whoever waits here would wait for ever.
                raise InputError(f"{self._name} is no longer read.")

    def stop(self) -> None:
        self._stop.set()

    def _seconds(self) -> Fraction:
        """Since the recording began."""
        return Fraction(time.monotonic() - self._began)

    def _read(self) -> None:
        """Open, read until it breaks, leave a gap, wait, and start again."""
        from av.error import FFmpegError

        connected, lost_at, wait_seconds = False, None, self.first_retry_seconds
        while not self._stop.is_set():
            try:
                with self._open() as container:
                    for frame in self._decoded(container):
                        if lost_at is not None:
                            self.notify(f"{self._name} is back after {time.monotonic() - lost_at:.0f} s.")
                        connected, lost_at, wait_seconds = True, None, self.first_retry_seconds
                        self._mailbox.put(frame)
                        if self._stop.is_set():
                            return
                text = "it ended"
            except (FFmpegError, OSError, ValueError) as error:
                text = reason(error)
            if not connected and not self.retry:
                return self._mailbox.fail(InputError(f"{self._name} cannot be opened ({text})."))
            if lost_at is None and not self._stop.is_set():
                lost_at = time.monotonic()
                self._lost("the stream was lost" if connected else "the stream cannot be opened", text)
            self._stop.wait(wait_seconds)
            wait_seconds = min(2 * wait_seconds, LAST_RETRY_SECONDS)

    def _lost(self, what: str, why: str) -> None:
        now = datetime.now(UTC)
        self._mailbox.put(Gap(self._number, timestamp(now), f"{what}: {why}", now))
        self.notify(f"{self._name}: {what} ({why}); trying again.")

    def _open(self) -> "InputContainer":
        import av

        # TCP: over UDP lost packets turn into damaged pictures, and those into wrong counts.
        options = {"rtsp_transport": "tcp"} if self.address.startswith("rtsp") else {}
        timeouts = (OPEN_SECONDS, self.silence_seconds)
        return av.open(self.address, format=self.format, options=options, timeout=timeouts, metadata_errors="replace")

    def _decoded(self, container: "InputContainer") -> Iterator[Frame]:
        """The chosen frames; damaged ones, usual after joining a stream in the middle, are skipped."""
        from av.error import InvalidDataError

        stream = container.streams.best("video")
        if stream is None or cast("av.CodecContext | None", stream.codec_context) is None:
            raise InvalidDataError(0, "it holds no video that can be decoded")

        def all_frames() -> "Iterator[av.VideoFrame]":
            for packet in container.demux(stream):
                with suppress(InvalidDataError):
                    yield from cast("list[av.VideoFrame]", packet.decode())

        for decoded in deinterlaced(all_frames(), self.deinterlace):
            number, self._number = self._number, self._number + 1
            if decoded.is_corrupt or not self.choice.wants(number, self._seconds()):
                continue
            now = datetime.now(UTC)
            yield Frame(number, timestamp(now), partial(upright, decoded), now)


def timestamp(time: datetime) -> Fraction:
    """Seconds since 1970, to the millisecond."""
    return Fraction(round(time.timestamp() * 1000), 1000)
