"""Live sources against a real stream over HTTP; RTSP is in test_live_system.py."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from support.servers import eventually
from support.streams import CameraStream
from support.videos import number_of

from uepnet.model.errors import InputError
from uepnet.video.frames import Choice, Frame, Gap
from uepnet.video.live import Live, Mailbox, timestamp


@pytest.fixture
def camera() -> Iterator[CameraStream]:
    camera = CameraStream()
    yield camera
    camera.cut()


@pytest.fixture
def sources() -> Iterator[list[Live]]:
    """Sources that are stopped in the end."""
    opened: list[Live] = []
    yield opened
    for source in opened:
        source.stop()


def watch(source: Live, sources: list[Live]) -> Iterator[Frame | Gap]:
    sources.append(source)
    return source.frames()


def test_frames_come_with_number_and_time_of_arrival(camera: CameraStream, sources: list[Live]) -> None:
    frames = watch(Live(camera.url, Choice()), sources)
    first, second = next(frames), next(frames)
    assert isinstance(first, Frame) and isinstance(second, Frame)
    assert second.number > first.number
    assert second.time is not None and abs((datetime.now(UTC) - second.time).total_seconds()) < 5
    assert second.timestamp == timestamp(second.time)
    picture = second.picture()
    assert not isinstance(picture, bytes)
    assert number_of(picture) == second.number % 20


def test_who_is_slow_gets_the_newest_frame_and_is_told_how_many_were_dropped(
    camera: CameraStream, sources: list[Live]
) -> None:
    frames = watch(Live(camera.url, Choice()), sources)
    first = next(frames)
    time.sleep(1)
    waiting = next(frames)
    assert isinstance(waiting, Frame)
    assert waiting.number - first.number - 1 == waiting.dropped > 10
    assert datetime.now(UTC).timestamp() - float(waiting.timestamp) < 0.5


def test_frames_that_were_not_chosen_are_not_dropped(camera: CameraStream, sources: list[Live]) -> None:
    frames = watch(Live(camera.url, Choice(every=10)), sources)
    for _ in range(4):
        frame = next(frames)
        assert isinstance(frame, Frame)
        assert (frame.number % 10, frame.dropped) == (0, 0)


def test_a_lost_stream_leaves_one_gap_and_comes_back(camera: CameraStream, sources: list[Live]) -> None:
    frames = watch(Live(camera.url, Choice(), first_retry_seconds=0.1), sources)
    before = next(frames)
    camera.cut()
    gap = next(item for item in frames if isinstance(item, Gap))
    assert gap.reason.startswith("the stream was lost: ")
    threading.Timer(1.5, camera.start).start()
    after = next(frames)
    assert isinstance(after, Frame), "one gap for one loss, however often it was tried"
    assert after.number > before.number
    assert after.timestamp - gap.timestamp > 1


def test_a_stream_that_falls_silent_is_lost(camera: CameraStream, sources: list[Live]) -> None:
    frames = watch(Live(camera.url, Choice(), first_retry_seconds=0.1, silence_seconds=0.5), sources)
    next(frames)
    camera.silent.set()
    assert any(isinstance(item, Gap) for item in frames)
    camera.silent.clear()
    assert isinstance(next(frames), Frame)


def test_the_end_comes_also_while_the_stream_is_lost(camera: CameraStream, sources: list[Live]) -> None:
    frames = watch(Live(camera.url, Choice(end=Fraction(2)), first_retry_seconds=0.1), sources)
    next(frames)
    camera.cut()
    assert [type(item) for item in frames][-1] is Gap  # and the frames end


def test_stopping_ends_the_frames(camera: CameraStream, sources: list[Live]) -> None:
    source = Live(camera.url, Choice())
    frames = watch(source, sources)
    next(frames)
    threading.Timer(0.3, source.stop).start()
    list(frames)
    eventually(lambda: "stream-reader" not in {thread.name for thread in threading.enumerate()})


@pytest.mark.parametrize(
    ("address", "format", "words"),
    [
        ("http://someone:secret@127.0.0.1:1/stream", None, r"^http://127.0.0.1:1/stream cannot be opened \(connection"),
        ("/dev/video99", "v4l2", r"^/dev/video99 cannot be opened \(no such file or directory\)\.$"),
    ],
)
def test_what_cannot_be_opened_at_first_is_one_sentence(address: str, format: str | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        next(Live(address, Choice(), format, retry=False).frames())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_ever_for_a_reader_that_a_fault_has_ended() -> None:
    def faulty(text: str) -> None:
        raise RuntimeError(text)

    with pytest.raises(InputError, match="no longer read"):
        list(Live("rtsp://127.0.0.1:9/nothing", Choice(), notify=faulty).frames())


def test_the_mailbox_keeps_the_newest_frame_and_every_gap() -> None:
    frame = Frame(0, Fraction(0), bytes)
    gap = Gap(3, Fraction(3), "lost")
    mailbox = Mailbox()
    for item in (frame, replace(frame, number=1), replace(frame, number=2), gap, replace(frame, number=4)):
        mailbox.put(item)
    taken = [mailbox.take(0) for _ in range(4)]
    assert taken == [replace(frame, number=2, dropped=2), gap, replace(frame, number=4), None]
