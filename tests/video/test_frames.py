from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.servers import encoded
from support.videos import noise, number_of, numbered, write_video

from uepnet.model.errors import InputError
from uepnet.model.file_names import natural
from uepnet.video.addresses import shown
from uepnet.video.frames import Choice, Damaged, Folder, Frame, Gap, VideoFile

UNEVEN = [0, 40, 100, 110, 300, 337, 374, 900, 901, 1500]


def drawn(source: VideoFile | Folder) -> tuple[list[Frame | Gap], Damaged | None]:
    """All that a source yields, and how it complained in the end."""
    frames: list[Frame | Gap] = []
    try:
        for frame in source.frames():
            frames.append(frame)
    except Damaged as error:
        return frames, error
    return frames, None


@pytest.mark.parametrize(("suffix", "codec"), [(".mp4", "libx264"), (".mkv", "libx264"), (".ts", "libx264")])
def test_frames_of_a_variable_frame_rate_keep_number_time_and_order(tmp_path: Path, suffix: str, codec: str) -> None:
    path = write_video(tmp_path / f"a{suffix}", [numbered(n) for n in range(10)], UNEVEN, codec)
    frames, complaint = drawn(VideoFile(str(path)))
    assert complaint is None
    assert [frame.number for frame in frames] == list(range(10))
    assert [frame.timestamp for frame in frames] == [Fraction(time, 1000) for time in UNEVEN]
    assert [number_of(frame.picture()) for frame in frames if isinstance(frame, Frame)] == list(range(10))


def test_time_begins_with_the_first_frame(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", [numbered(n) for n in range(3)], [5000, 5040, 5080])
    assert [frame.timestamp for frame in drawn(VideoFile(str(path)))[0]] == [0, Fraction(1, 25), Fraction(2, 25)]


def test_a_stream_without_times_goes_by_its_frame_rate(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.h264", [numbered(n) for n in range(5)])
    frames, _ = drawn(VideoFile(str(path)))
    assert len(frames) == 5
    assert all(later.timestamp - earlier.timestamp == Fraction(1, 25) for earlier, later in pairwise(frames))


@pytest.mark.parametrize("rotation", [90, 180, -90])
def test_a_phone_s_rotation_is_undone(tmp_path: Path, rotation: int) -> None:
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:16, :16] = 255
    plain, turned = (
        next(VideoFile(str(write_video(tmp_path / f"{angle}.mp4", [picture], rotation=angle))).frames())
        for angle in (0, rotation)
    )
    assert isinstance(plain, Frame) and isinstance(turned, Frame)
    shown = turned.picture()
    assert isinstance(shown, np.ndarray)
    assert np.array_equal(shown, np.rot90(plain.picture(), rotation // 90))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.mp4", {"movflags": "faststart"}),
        ("a.mp4", {"movflags": "frag_keyframe+empty_moov"}),
        ("a.mkv", {}),
    ],
)
def test_what_is_left_of_a_truncated_video_comes_and_then_a_sentence(
    tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    path = write_video(tmp_path / name, noise(100), options=options)
    whole = [frame.timestamp for frame in drawn(VideoFile(str(path)))[0]]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    frames, complaint = drawn(VideoFile(str(path)))
    assert 40 < len(frames) < 60
    assert [frame.timestamp for frame in frames] == whole[: len(frames)]
    assert "is cut off: the last 2.0 seconds are missing" in str(complaint)


def test_a_slot_is_a_gap_only_where_all_its_frames_are_damaged() -> None:
    damaged = {0, 1, 5, *range(10, 15), 20, 24}  # of slots of five frames
    items = [
        Gap(number, Fraction(number, 25), "damaged")
        if number in damaged
        else Frame(number, Fraction(number, 25), lambda: b"")
        for number in range(25)
    ]
    chosen = list(Choice(fps=Fraction(5)).of(iter(items)))
    assert [(item.number, isinstance(item, Gap)) for item in chosen] == [
        *[(2, False), (6, False), (10, True), (15, False), (21, False)]
    ]
    assert [item.number for item in Choice(fps=Fraction(5), start=Fraction(2, 5)).of(iter(items[:14]))] == [10]


def test_frames_of_an_avi_are_shown_in_the_order_of_their_times(tmp_path: Path) -> None:
    """It has no times of showing: with B-frames they came out as 0.12, 0.08, 0.2."""
    base = np.random.default_rng(1).integers(0, 256, (144, 400, 3), np.uint8)
    pictures = [np.ascontiguousarray(base[:, 2 * number : 2 * number + 176]) for number in range(60)]
    with av.open(str(tmp_path / "a.avi"), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options={"bf": "3", "preset": "medium"})
        stream.width, stream.height, stream.pix_fmt = 176, 144, "yuv420p"
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    with av.open(str(tmp_path / "a.avi")) as container:
        times = [frame.pts for frame in container.decode(video=0)]
        assert times != sorted(times), "the file does have B-frames"
    frames, complaint = drawn(VideoFile(str(tmp_path / "a.avi")))
    assert complaint is None
    assert [frame.timestamp for frame in frames] == [Fraction(number, 25) for number in range(60)]


def test_damage_in_the_middle_costs_only_what_it_hit(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", noise(60), options={"movflags": "faststart"})
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 12_000] = bytes(12_000)
    path.write_bytes(content)
    frames, complaint = drawn(VideoFile(str(path)))
    assert complaint is not None or any(isinstance(frame, Gap) for frame in frames)
    assert 50 <= len(frames) <= 60
    assert frames[-1].timestamp == Fraction(59, 25)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "is empty"), (b"just some words\n" * 100, r"is not a video that can be read")],
)
def test_what_is_no_video_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"a\.mp4 {sentence}"):
        VideoFile(str(path))


def test_a_video_whose_codec_is_unknown_is_refused(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", noise(5))
    path.write_bytes(path.read_bytes().replace(b"avc1", b"zzzz"))
    with pytest.raises(InputError, match=r"a.mp4 is not a video that can be read \(there is no decoder for its codec"):
        VideoFile(str(path))


def test_a_video_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        VideoFile(str(tmp_path / "a.mp4"))


def test_a_password_is_not_shown() -> None:
    assert shown("rtsp://someone:secret@camera.local:554/a?b=c") == "rtsp://camera.local:554/a?b=c"
    assert shown("/dev/video0") == "/dev/video0"
    with pytest.raises(InputError, match=r"^http://127\.0\.0\.1:1/a\.mp4 is not"):
        VideoFile("http://someone:secret@127.0.0.1:1/a.mp4")


def test_a_sound_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    with pytest.raises(InputError, match="holds no video"):
        VideoFile(str(path))


def test_a_name_with_a_colon_is_a_file_and_no_protocol(tmp_path: Path) -> None:
    path = write_video(tmp_path / "12:30 gate.mp4", [numbered(0)], format="mp4")
    assert len(drawn(VideoFile(str(path)))[0]) == 1


def test_a_stopped_file_ends(tmp_path: Path) -> None:
    source = VideoFile(str(write_video(tmp_path / "a.mp4", [numbered(n % 20) for n in range(200)])))
    frames = source.frames()
    next(frames)
    source.stop()
    assert len(list(frames)) < 100


def test_a_folder_s_pictures_come_in_natural_order_at_its_rate(tmp_path: Path) -> None:
    for number in (10, 9, 100, 1):
        (tmp_path / f"frame{number}.png").write_bytes(encoded(numbered(0)))
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden.png").write_bytes(b"")
    (tmp_path / "frame9.png").write_bytes(b"nine")
    frames = list(Folder(tmp_path, Fraction(2)).frames())
    assert [(frame.number, frame.timestamp) for frame in frames] == [(0, 0), (1, 0.5), (2, 1), (3, 1.5)]
    assert frames[1].picture() == b"nine"


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no images"):
        Folder(tmp_path)


@given(st.lists(st.integers(0, 10**12), unique=True))
def test_names_with_numbers_sort_by_number(numbers: list[int]) -> None:
    names = [f"seq_{number}.jpg" for number in numbers]
    assert sorted(names, key=natural) == [f"seq_{number}.jpg" for number in sorted(numbers)]


def chosen(choice: Choice, times: list[Fraction]) -> list[int]:
    frames = (Frame(number, time, bytes) for number, time in enumerate(times))
    return [frame.number for frame in choice.of(frames)]


def test_every_third_frame_is_chosen_by_its_number() -> None:
    assert chosen(Choice(every=3), [Fraction(n, 25) for n in range(10)]) == [0, 3, 6, 9]


def test_start_belongs_to_the_choice_and_end_does_not() -> None:
    choice = Choice(start=Fraction(1), end=Fraction(2))
    assert chosen(choice, [Fraction(n, 2) for n in range(6)]) == [2, 3]


times = st.lists(st.fractions(0, 60, max_denominator=1000), unique=True).map(sorted)


@given(times, st.fractions(Fraction(1, 20), 60, max_denominator=50))
def test_a_frame_rate_takes_the_first_frame_of_each_slot(times: list[Fraction], fps: Fraction) -> None:
    firsts: dict[int, int] = {}
    for number, time in enumerate(times):
        firsts.setdefault(int(time * fps), number)
    assert chosen(Choice(fps=fps), times) == list(firsts.values())
