"""Damaged, joined and foreign files in many codecs and containers: what is lost is told; a sound file is silent."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support.videos import noise, write_video

from uepnet.model.errors import InputError
from uepnet.video.frames import Choice, Damaged, Frame, Gap, VideoFile

FRAMES = 50  # 2 seconds
# Name -> codec, pixel format.
KINDS = {
    "h264.mp4": ("libx264", "yuv420p"),
    "h265.mp4": ("libx265", "yuv420p"),
    "mpeg4.mp4": ("mpeg4", "yuv420p"),
    "prores.mov": ("prores_ks", "yuv422p10le"),
    "mjpeg.mov": ("mjpeg", "yuvj420p"),
    "h264.mkv": ("libx264", "yuv420p"),
    "h265.mkv": ("libx265", "yuv420p"),
    "ffv1.mkv": ("ffv1", "yuv420p"),
    "vp9.webm": ("libvpx-vp9", "yuv420p"),
    "h264.avi": ("libx264", "yuv420p"),
    "mpeg4.avi": ("mpeg4", "yuv420p"),
    "mjpeg.avi": ("mjpeg", "yuvj420p"),
    "h264.ts": ("libx264", "yuv420p"),
    "mpeg2.mpg": ("mpeg2video", "yuv420p"),
    "wmv2.wmv": ("wmv2", "yuv420p"),
    "sorenson.flv": ("flv", "yuv420p"),
    "mpeg2.mxf": ("mpeg2video", "yuv420p"),
    "mpeg4.3gp": ("mpeg4", "yuv420p"),
    "vp8.ivf": ("libvpx", "yuv420p"),
    "picture.gif": ("gif", "rgb8"),
    "picture.apng": ("apng", "rgb24"),
    "raw.h264": ("libx264", "yuv420p"),
}
ENDLESS = {".ts", ".mpg", ".h264"}  # formats that do not say how long they are: a cut between two frames is not seen
# A decoder that conceals, in a format without anything to compare with.
UNSEEN_DAMAGE = {"wmv2.wmv", "picture.gif", "raw.h264"}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("originals")
    pictures = noise(FRAMES)
    found = {}
    for name, (codec, pixels) in KINDS.items():
        options = {"movflags": "faststart"} if name.endswith((".mp4", ".3gp", ".mov")) else {}
        with av.open(str(folder / name), "w", options=options) as container:
            stream = container.add_stream(codec, rate=25)
            stream.width, stream.height, stream.pix_fmt = 64, 48, pixels
            if codec == "libx265":
                stream.options = {"x265-params": "log-level=none:keyint=10", "preset": "ultrafast"}
            if codec == "libx264":
                stream.options = {"g": "10", "preset": "veryfast"}
            for number, picture in enumerate(pictures):
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(64, 48, pixels)
                frame.pts, frame.time_base = number, Fraction(1, 25)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        found[name] = (folder / name).read_bytes()
    return found


def read(path: Path) -> tuple[list[Frame], list[Gap], str]:
    """Frames, gaps, and the sentence at the end."""
    items: list[Frame | Gap] = []
    complaint = ""
    try:
        for item in VideoFile(str(path)).frames():
            items.append(item)
    except InputError as error:
        complaint = str(error)
    assert [item.number for item in items] == list(range(len(items)))
    assert all(before.timestamp <= after.timestamp for before, after in pairwise(items))
    return [i for i in items if isinstance(i, Frame)], [i for i in items if isinstance(i, Gap)], complaint


@pytest.mark.parametrize("name", KINDS)
def test_a_sound_file_has_all_its_frames_and_no_complaint(
    originals: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(originals[name])
    frames, gaps, complaint = read(path)
    assert (len(frames), gaps, complaint) == (FRAMES, [], "")


@pytest.mark.parametrize("name", [name for name in KINDS if name not in UNSEEN_DAMAGE])
def test_damage_in_the_middle_is_told(originals: dict[str, bytes], tmp_path: Path, name: str) -> None:
    content = bytearray(originals[name])
    middle = len(content) // 2
    content[middle - 2000 : middle + 2000] = bytes(4000)
    path = tmp_path / name
    path.write_bytes(content)
    frames, _, complaint = read(path)
    assert name in complaint, "nobody was told"
    assert 0 < len(frames) < FRAMES


@pytest.mark.parametrize("share", [0.9, 0.5])
@pytest.mark.parametrize("name", [name for name in KINDS if Path(name).suffix not in ENDLESS])
def test_a_cut_is_told(originals: dict[str, bytes], tmp_path: Path, name: str, share: float) -> None:
    path = tmp_path / name
    path.write_bytes(originals[name][: int(len(originals[name]) * share)])
    _, _, complaint = read(path)
    assert name in complaint, "nobody was told"


@pytest.mark.parametrize("name", ["h264.mp4", "mjpeg.mov", "h265.mkv", "mpeg4.avi", "wmv2.wmv"])
def test_a_single_missing_byte_is_told_as_one(originals: dict[str, bytes], tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(originals[name][:-1])
    assert "is cut off: its last byte is missing" in read(path)[2]


@pytest.mark.parametrize("name", ["h264.mp4", "h264.mkv", "mpeg4.avi"])
def test_what_follows_the_video_is_no_part_of_it(originals: dict[str, bytes], tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(originals[name] + b"junk" * 50)
    frames, gaps, complaint = read(path)
    assert (len(frames), gaps, complaint) == (FRAMES, [], "")


def test_a_frame_that_an_avi_lost_is_told(originals: dict[str, bytes], tmp_path: Path) -> None:
    """Its frames carry no times: those behind the lost one would only come earlier."""
    path = tmp_path / "mjpeg.avi"
    content = originals["mjpeg.avi"]
    at = content.index(b"00dc", len(content) // 2)
    path.write_bytes(content[:at] + bytes(1500) + content[at + 1500 :])
    frames, _, complaint = read(path)
    assert len(frames) < FRAMES
    assert f"{FRAMES - len(frames)} of its {FRAMES} frames are missing" in complaint


def test_a_raw_stream_that_lost_frames_says_so(originals: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "raw.265"
    with av.open(str(tmp_path / "raw.265"), "w", format="hevc") as container:
        stream: Any = container.add_stream("libx265", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.options = {"x265-params": "log-level=none", "preset": "ultrafast"}
        for picture in noise(FRAMES):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    content = path.read_bytes()
    assert len(read(path)[0]) == FRAMES
    third = len(content) // 3
    path.write_bytes(content[:third] + content[third + 20_000 :])
    frames, _, complaint = read(path)
    assert len(frames) < FRAMES
    assert "could not be decoded" in complaint


def test_a_lost_frame_leaves_a_gap_at_its_own_number_and_time(originals: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "h265.mp4"
    content = bytearray(originals["h265.mp4"])
    middle = len(content) // 2
    content[middle - 1000 : middle + 1000] = bytes(2000)
    path.write_bytes(content)
    frames, gaps, complaint = read(path)
    assert len(frames) + len(gaps) == FRAMES
    assert {item.timestamp * 25 for item in [*frames, *gaps]} == set(range(FRAMES))
    assert complaint == f"{path} is damaged: {len(gaps)} of its frames could not be decoded."


@pytest.mark.parametrize("name", ["h264.mkv", "h265.mkv"])
def test_a_hole_in_a_file_leaves_a_gap(originals: dict[str, bytes], tmp_path: Path, name: str) -> None:
    content = originals[name]
    path = tmp_path / name
    path.write_bytes(content[: len(content) // 3] + bytes(5000) + content[len(content) // 3 + 5000 :])
    _, gaps, _ = read(path)
    assert any(gap.reason.startswith("there is no frame for 0.") for gap in gaps)


def test_a_long_time_without_frames_is_a_gap(tmp_path: Path) -> None:
    times = [40 * number + (20_000 if number >= 25 else 0) for number in range(50)]
    frames, gaps, complaint = read(write_video(tmp_path / "a.mp4", noise(50), times))
    assert (len(frames), complaint) == (50, "")
    assert [(gap.number, gap.timestamp, gap.reason) for gap in gaps] == [(25, 1, "there is no frame for 20.0 s")]


def test_an_avi_with_frames_at_irregular_times_has_no_holes(tmp_path: Path) -> None:
    times = [400 * (number // 2) + 40 * (number % 2) for number in range(50)]  # it notes every skipped millisecond
    frames, gaps, complaint = read(write_video(tmp_path / "a.avi", noise(50), times, codec="mpeg4"))
    assert (len(frames), gaps, complaint) == (50, [], "")


@pytest.mark.parametrize("choice", [Choice(every=7), Choice(fps=Fraction(1))])
def test_such_a_gap_is_told_whichever_frames_are_chosen(tmp_path: Path, choice: Choice) -> None:
    times = [40 * number + (20_000 if number >= 30 else 0) for number in range(50)]
    path = write_video(tmp_path / "a.mp4", noise(50), times)
    assert sum(isinstance(item, Gap) for item in choice.of(VideoFile(str(path)).frames())) == 1


def test_frames_that_are_always_far_apart_have_no_gaps(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", noise(10), [60_000 * number for number in range(10)])
    assert not read(path)[1]


@pytest.mark.parametrize("name", ["h264.ts", "mpeg2.mpg"])
def test_recordings_that_were_joined_follow_each_other(originals: dict[str, bytes], tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(2 * originals[name])
    items = []
    try:
        for item in VideoFile(str(path)).frames():
            items.append(item)
    except Damaged:
        pass  # the frame at the joint may be incomplete
    assert len(items) == 2 * FRAMES
    assert [item.timestamp * 25 for item in items] == list(range(2 * FRAMES))
    assert len(list(Choice(fps=Fraction(5)).of(iter(items)))) == 20


@pytest.mark.parametrize("name", ["a.txt", "a.nfo", "a.ans", "a.diz"])
def test_text_is_no_video(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("people walk through the station\n" * 200)
    with pytest.raises(InputError, match=r"holds no video"):
        VideoFile(str(path))


def test_the_cover_of_a_song_is_no_video(tmp_path: Path) -> None:
    path = tmp_path / "song.mp3"
    with av.open(str(path), "w") as container:
        sound = container.add_stream("libmp3lame", rate=44100)
        cover = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 48, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        picture = av.VideoFrame.from_ndarray(noise(1)[0], format="rgb24").reformat(64, 48, "yuvj420p")
        picture.pts, picture.time_base = 0, Fraction(1, 1)
        container.mux(cover.encode(picture) + cover.encode(None))
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 2304), np.int16), format="s16", layout="stereo")
        silence.sample_rate = 44100
        container.mux(sound.encode(silence) + sound.encode(None))
    with pytest.raises(InputError, match=r"holds no video"):
        VideoFile(str(path))


def test_a_file_without_one_frame_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mjpeg"
    path.write_bytes(np.random.default_rng(1).bytes(100_000))
    with pytest.raises(InputError, match=r"no frame of it can be"):
        list(VideoFile(str(path)).frames())
