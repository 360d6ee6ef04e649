"""Whether a file is whole: cut, unfinished and shifted recordings in many containers, made with the real muxers."""

import os
from pathlib import Path
from typing import Any

import av
import pytest
from support.videos import noise, write_video

from uepnet.model.errors import InputError
from uepnet.video.containers import declared_bytes, lacks_index
from uepnet.video.frames import Damaged, Frame, VideoFile

FRAMES = 100  # 4 seconds


def counted(path: Path) -> int:
    return sum(isinstance(item, Frame) for item in VideoFile(str(path)).frames())


def cut(path: Path, share: float) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


CODECS = dict.fromkeys((".mp4", ".mkv", ".mov", ".ts"), "libx264") | {".avi": "mpeg4", ".webm": "libvpx"}


@pytest.fixture(scope="module", params=sorted(CODECS))
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    suffix: str = request.param
    options = {"movflags": "faststart"} if suffix in (".mp4", ".mov") else None
    path = tmp_path_factory.mktemp("whole") / f"a{suffix}"
    return write_video(path, noise(FRAMES), codec=CODECS[suffix], options=options)


def test_a_whole_file_is_whole(whole: Path) -> None:
    assert counted(whole) == FRAMES
    assert declared_bytes(whole) in (None, whole.stat().st_size)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_file_that_was_cut_says_so(whole: Path, tmp_path: Path, share: float) -> None:
    if whole.suffix == ".ts":
        pytest.skip("a transport stream says nowhere how long it is")
    path = tmp_path / whole.name
    path.write_bytes(whole.read_bytes())
    number = 0
    with pytest.raises(Damaged, match=r"a\.\w+ (is cut off|breaks off|is damaged)"):
        for item in VideoFile(str(cut(path, share))).frames():
            number += isinstance(item, Frame)
    assert 10 < number <= FRAMES  # of an AVI perhaps only the index is lost


@pytest.mark.parametrize("suffix", [".mkv", ".webm", ".wmv"])
def test_a_segment_that_does_not_start_at_zero_is_whole(tmp_path: Path, suffix: str) -> None:
    times = [600_000 + 40 * number for number in range(FRAMES)]
    path = write_video(tmp_path / f"segment{suffix}", noise(FRAMES), times, codec=CODECS.get(suffix, "wmv2"))
    with av.open(str(path)) as container:
        assert (container.start_time or 0) > 500 * 10**6, "the file does start late"
    assert counted(path) == FRAMES
    with pytest.raises(Damaged, match="is cut off"):
        counted(cut(path, 0.5))


def test_an_mp4_without_its_index_was_never_finished(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", noise(FRAMES))
    assert not lacks_index(path)
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b"moov") - 4])
    assert lacks_index(path)
    with pytest.raises(InputError, match=r"a.mp4 was never finished: the recording ended before its index"):
        VideoFile(str(path))


ENDLESS = {
    "h264.ts": ("libx264", None, {}),
    "h264.m2ts": ("libx264", None, {}),
    "mpeg2.mpg": ("mpeg2video", None, {}),
    "live.mkv": ("libx264", None, {"live": "1"}),
    "sorenson.flv": ("flv", None, {"flvflags": "no_duration_filesize"}),
    "frames.mjpeg": ("mjpeg", "mjpeg", {}),
    "raw.y4m": ("rawvideo", None, {}),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_format_without_a_length_tells_a_cut_inside_its_last_part(tmp_path: Path, name: str) -> None:
    codec, format, options = ENDLESS[name]
    path = tmp_path / name
    with av.open(str(path), "w", format=format, options=options) as container:
        stream: Any = container.add_stream(codec, rate=25)
        stream.width, stream.height = 64, 48
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for picture in noise(FRAMES):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    assert counted(path) == FRAMES
    whole = path.read_bytes()
    for cut_bytes in (len(whole) // 2 | 1, len(whole) // 3 | 1):
        path.write_bytes(whole[:cut_bytes])
        with pytest.raises(Damaged, match=r"is cut off: it ends in the middle of a|is damaged: \d+ of its frames"):
            counted(path)


def test_what_follows_a_stream_without_a_length_is_no_part_of_it(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", noise(FRAMES), options={"live": "1"})
    path.write_bytes(path.read_bytes() + b"junk" * 50)
    assert counted(path) == FRAMES


@pytest.mark.parametrize(("name", "codec"), [("a.avi", "mpeg4"), ("a.mxf", "mpeg2video")])
def test_a_recorder_that_was_killed_did_not_finish_its_file(tmp_path: Path, name: str, codec: str) -> None:
    killed = tmp_path / f"killed-{name}"
    with av.open(str(tmp_path / name), "w") as container:
        stream: Any = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for picture in noise(60, 320, 240):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        killed.write_bytes((tmp_path / name).read_bytes())
    with pytest.raises(Damaged, match="was never finished: the recording ended before its index was written"):
        counted(killed)


def test_fragments_behind_bytes_that_are_none_are_told(tmp_path: Path) -> None:
    options = {"movflags": "frag_every_frame+empty_moov"}
    path = write_video(tmp_path / "a.mp4", noise(FRAMES), options=options)
    assert counted(path) == FRAMES
    content = path.read_bytes()
    third = len(content) // 3
    path.write_bytes(content[:third] + content[third + 5000 :])
    with pytest.raises(Damaged, match=r"is damaged: what follows its first [\d,]+ bytes cannot be read"):
        counted(path)


@pytest.mark.parametrize(
    "content", [b"", b"RIFF", b"\x1a\x45\xdf\xa3", b"\0\0\0\x08ftyp", b"\0\0\0\x01ftyp", b"RIFF" * 9]
)
def test_what_is_no_container_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(content)
    declared_bytes(path)
    lacks_index(path)
    with pytest.raises(InputError):
        VideoFile(str(path))


def test_metadata_that_is_not_utf_8_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as container:
        container.metadata["title"] = "TITLE-TITLE"
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for picture in noise(5):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    path.write_bytes(path.read_bytes().replace(b"TITLE-TITLE", b"TITLE-\xff\xfe\x1b[3"))
    assert counted(path) == 5


@pytest.mark.parametrize("name", ["/dev/zero", "pipe"])
def test_a_device_or_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a device or a pipe, not a video file"):
        VideoFile(str(tmp_path / name))
