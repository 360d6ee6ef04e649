from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from uepnet.model.errors import InputError, OutputError
from uepnet.model.smoothing import Breach, Hysteresis
from uepnet.video.plot import draw
from uepnet.video.recording import Record, to_line
from uepnet.video.series import Series, breaches, load_series


def record(second: float, count: float, **fields: object) -> Record:
    return {"frame": int(second), "timestamp": second, "count": count, "range": None, "zones": [], **fields}


def gap(second: float) -> Record:
    return {"frame": int(second), "timestamp": second, "gap": "the stream was lost: it ended"}


def series(*counts: float | None) -> Series:
    line = Series("gate")
    for second, count in enumerate(counts):
        line.add(gap(second) if count is None else record(second, count))
    return line


def test_a_gap_breaks_the_line_and_counts_nobody() -> None:
    line = series(3, None, 4)
    assert line.seconds == [0, 1, 2]
    assert [isnan(count) for count in line.count] == [False, True, False]


def test_zones_that_appear_later_are_unknown_before() -> None:
    line = series(1)
    line.add(record(1, 2, zones=[{"name": "b", "count": 1.0}, {"name": "a", "count": 2.0}]))
    assert list(line.zones) == ["b", "a"]
    assert [isnan(count) for count in line.zones["a"]] == [True, False]


def test_alerts_tell_when_the_threshold_was_reached_and_left() -> None:
    line = series(1, 5, 7, 2, None, 9, None, 6)
    line.smooth(0)
    assert breaches(line, Hysteresis(5)) == [
        Breach(1, 1, 7, 2, end=3),
        Breach(5, 5, 9, 5),  # a gap in between ends nothing
    ]


@given(st.lists(st.none() | st.floats(0, 10), max_size=30), st.floats(0.1, 10))
def test_every_count_at_the_threshold_lies_in_exactly_one_alert(counts: list[float | None], threshold: float) -> None:
    line = series(*counts)
    line.smooth(0)
    found = breaches(line, Hysteresis(threshold, clear_below=threshold))
    for second, count in enumerate(counts):
        if count is not None:
            inside = [a for a in found if a.start <= second and (a.end is None or second < a.end)]
            assert len(inside) == (count >= threshold)


def test_recordings_are_called_after_their_cameras_or_files(tmp_path: Path) -> None:
    path = tmp_path / "station.jsonl"
    path.write_bytes(to_line(record(0, 1)) + to_line(record(0, 2, camera="gate")))
    assert [line.label for line in load_series(path)] == ["station", "gate"]


def test_an_empty_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match="holds no counts"):
        load_series(tmp_path / "a.jsonl")


def full_series(label: str, clock: bool = False) -> Series:
    line = Series(label)
    for second in range(60):
        bounds = {"low": second - 5.0, "high": second + 5.0, "level": 0.9}
        zones = [{"name": "stairs", "count": second / 2}]
        fields: dict[str, object] = {"range": bounds, "zones": zones} | (
            {"time": f"2026-11-18T20:00:{second:02}Z"} if clock else {}
        )
        line.add(gap(second) if 20 < second < 25 else record(1.79e9 * clock + second, second, **fields))
    return line


@pytest.mark.parametrize("clock", [False, True])
@pytest.mark.parametrize("names", [["gate"], ["gate", "hall", "stairs"]])
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_one_or_many_cameras_are_drawn(tmp_path: Path, names: list[str], clock: bool, suffix: str) -> None:
    path = tmp_path / f"counts{suffix}"
    draw([full_series(name, clock) for name in names], path, alert=Hysteresis(30))
    assert path.stat().st_size > 1000


def test_a_threshold_and_a_gap_change_the_picture(tmp_path: Path) -> None:
    pictures = []
    for number, (line, alert) in enumerate(
        [(series(1, 2, 3), None), (series(1, 2, 3), Hysteresis(2)), (series(1, None, 3), None)]
    ):
        draw([line], tmp_path / f"{number}.png", alert)
        pictures.append(Image.open(tmp_path / f"{number}.png").tobytes())
    assert len(set(pictures)) == 3


def test_a_count_between_two_gaps_is_seen(tmp_path: Path) -> None:
    draw([series(1, 3, None, 2, None, 3, 1)], tmp_path / "one.png")
    draw([series(1, 3, None, None, None, 3, 1)], tmp_path / "none.png")
    assert Image.open(tmp_path / "one.png").tobytes() != Image.open(tmp_path / "none.png").tobytes()


def test_times_of_alerts_do_not_cover_each_other(tmp_path: Path) -> None:
    lines = [series(1, 9, *[1] * 98), series(1, 1, 1, 9, *[1] * 96), series(*[1] * 60, 9, *[1] * 39)]
    for line in lines:
        line.smooth(0)
    draw(lines, tmp_path / "a.svg", alert=Hysteresis(5))
    drawn = (tmp_path / "a.svg").read_text()
    assert [drawn.count(f"<!-- 00:{time} -->") for time in ("01", "03")] == [1, 0]
    assert drawn.count("<!-- 01:00 -->") == 2  # one of them on the axis


def test_moments_of_a_short_video_have_tenths() -> None:
    assert [series(1).moment(second) for second in (2.6, 3.0, 61.25)] == ["00:02.6", "00:03", "01:01.2"]


def test_a_picture_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        draw([series(1)], tmp_path / "nowhere" / "a.png")
    with pytest.raises(InputError, match=r"ends in \.png, \.svg or \.pdf"):
        draw([series(1)], tmp_path / "a.xyz")
