from contextlib import closing
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from uepnet.model.count import Count
from uepnet.model.errors import OutputError
from uepnet.video.annotate import AnnotatedVideo, next_part


def counted(image: NDArray[np.uint8]) -> Count:
    height, width = image.shape[:2]
    cells = np.full((-(-height // 8), -(-width // 8)), 0.1, np.float32)
    return Count(float(cells.sum()), None, cells, width, height, (), 0.0, (), 8)


def write(video: AnnotatedVideo, sizes: list[tuple[int, int]], times: list[Fraction]) -> None:
    for (width, height), time in zip(sizes, times, strict=True):
        image = np.full((height, width, 3), 90, np.uint8)
        video.write(image, counted(image), time)


def read(path: Path) -> list[av.VideoFrame]:
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


def test_each_frame_is_shown_at_its_own_time(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    times = [Fraction(5), Fraction(51, 10), Fraction(8), Fraction(98, 10)]
    video = AnnotatedVideo(path)
    write(video, [(160, 120)] * 4, times)
    video.close()
    frames = read(path)
    assert [frame.pts * frame.time_base for frame in frames] == [0, Fraction(1, 10), 3, Fraction(48, 10)]
    assert (frames[0].width >= 160, frames[0].height > 120) == (True, True)


def test_odd_and_changing_sizes_fit_the_first_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    video = AnnotatedVideo(path)
    write(video, [(333, 201), (640, 480), (64, 48)], [Fraction(n) for n in range(3)])
    video.close()
    frames = read(path)
    assert len({(frame.width, frame.height) for frame in frames}) == 1
    assert (frames[0].width % 2, frames[0].height % 2) == (0, 0)


def test_what_a_killed_writer_left_can_be_played(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    video = AnnotatedVideo(path)
    write(video, [(160, 120)] * 12, [Fraction(n, 10) for n in range(12)])
    left = tmp_path / "left.mp4"
    left.write_bytes(path.read_bytes())
    video.close()
    assert len(read(left)) == 11  # the last one is written when its successor tells how long it is shown
    assert len(read(path)) == 12


def test_a_video_without_frames_leaves_no_file(tmp_path: Path) -> None:
    AnnotatedVideo(tmp_path / "a.mp4").close()
    assert not (tmp_path / "a.mp4").exists()


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    video = AnnotatedVideo(tmp_path / "nowhere" / "a.mp4")
    with pytest.raises(OutputError, match="cannot be written"):
        write(video, [(160, 120)], [Fraction(0)])


def test_a_full_disk_is_one_sentence() -> None:
    with (
        pytest.raises(OutputError, match=r"cannot be written .*no space left"),
        closing(AnnotatedVideo(Path("/dev/full"))) as video,
    ):
        write(video, [(160, 120)] * 200, [Fraction(n, 10) for n in range(200)])


def test_a_resumed_video_goes_to_the_next_part(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    assert next_part(path) == path
    path.touch()
    (tmp_path / "a-2.mp4").touch()
    assert next_part(path) == tmp_path / "a-3.mp4"
