"""Interlaced video: no combs, no frame lost, nothing changed where frames are whole."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from support.videos import numbered, write_video

from uepnet.video.deinterlace import Mode
from uepnet.video.frames import Frame, VideoFile

INTERLACED = {"libx264": {"x264-params": "tff=1"}, "mpeg2video": {"b": "2M"}}


def moving(number: int) -> NDArray[np.uint8]:
    """A bar that is 4 pixels further in the lines of the second field."""
    picture = np.zeros((96, 160, 3), np.uint8)
    picture[0::2, 10 + 8 * number : 30 + 8 * number] = 255
    picture[1::2, 14 + 8 * number : 34 + 8 * number] = 255
    return picture


def interlaced_video(path: Path, codec: str, count: int = 12) -> Path:
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=25, options={"flags": "+ildct+ilme", **INTERLACED[codec]})
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(moving(number), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def frames(path: Path, mode: Mode) -> list[tuple[int, Fraction, NDArray[np.uint8]]]:
    found = []
    for item in VideoFile(str(path), mode).frames():
        assert isinstance(item, Frame)
        picture = item.picture()
        assert not isinstance(picture, bytes)
        found.append((item.number, item.timestamp, picture))
    return found


def comb(picture: NDArray[np.uint8]) -> float:
    """How much neighbouring lines differ."""
    return float(np.abs(np.diff(picture.astype(int), axis=0)).mean())


@pytest.mark.parametrize(("codec", "name"), [("libx264", "a.mp4"), ("mpeg2video", "a.mpg")])
def test_interlaced_frames_have_no_combs_and_keep_their_times(tmp_path: Path, codec: str, name: str) -> None:
    path = interlaced_video(tmp_path / name, codec)
    raw, whole = frames(path, "off"), frames(path, "auto")
    assert [(number, time) for number, time, _ in whole] == [(number, time) for number, time, _ in raw]
    assert len(whole) == 12
    for (_, _, before), (_, _, after) in zip(raw, whole, strict=True):
        assert comb(before) > 5 > 1 > comb(after)


def test_progressive_video_is_not_touched(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", [numbered(number) for number in range(10)])
    raw, whole = frames(path, "off"), frames(path, "auto")
    assert all(np.array_equal(before[2], after[2]) for before, after in zip(raw, whole, strict=True))


def test_on_request_every_frame_is_deinterlaced(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", [moving(number) for number in range(10)])  # interlaced, but not marked
    assert comb(frames(path, "auto")[5][2]) > 5
    assert comb(frames(path, "on")[5][2]) < 1
    assert len(frames(path, "on")) == 10
