"""Recordings as columns: smoothing, alerts on the smoothed count, and sums that never invent people."""

import json
from datetime import datetime, timedelta
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uepnet.model.errors import InputError
from uepnet.model.smoothing import Hysteresis
from uepnet.video.recording import Record
from uepnet.video.series import Series, breaches, load_all, load_series, total
from uepnet.video.smoothed import Smoother


def record(second: float, count: float | None, **fields: object) -> Record:
    if count is None:
        return {"frame": int(second), "timestamp": second, "gap": "lost"}
    return {"frame": int(second), "timestamp": second, "count": count, "range": None, "zones": [], **fields}


def series(label: str, counts: list[float | None], start: float = 0.0) -> Series:
    line = Series(label)
    for second, count in enumerate(counts):
        line.add(record(start + second, count))
    return line


def test_smoothing_a_series_is_smoothing_its_records() -> None:
    counts: list[float | None] = [3, 9, 4, None, 5, 30, 6, 7]
    line, smoother = series("gate", counts), Smoother(3)
    line.smooth(3)
    recorded = [smoother.add(record(second, count)).get("smoothed") for second, count in enumerate(counts)]
    assert [None if isnan(value) else value for value in line.smoothed] == recorded


def test_a_clock_that_is_set_back_does_not_stop_smoothing() -> None:
    smoother = Smoother(10)
    assert [smoother.add(record(second, 5.0))["smoothed"] for second in (100, 40, 101)] == [5, 5, 5]


def test_alerts_follow_the_smoothed_count() -> None:
    line = series("gate", [10, 10, 90, 10, 10, 50, 52, 51, 53, 50, 10, 10, 10, 10])
    smoothed = [(breach.start, breach.end) for breach in breaches(line, Hysteresis(40))]
    assert smoothed == [(6, 12)]  # 90 is in the window then; without --smooth it is 5 seconds long
    line.smooth(5)
    assert [(breach.start, breach.end) for breach in breaches(line, Hysteresis(40))] == smoothed
    line.smooth(0)
    assert len(breaches(line, Hysteresis(40))) == 2


def test_records_that_were_smoothed_are_used_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(record(0, 10, smoothed=4.0)) + "\n")
    assert load_series(tmp_path / "a.jsonl")[0].best == [4.0]


def write_hour(path: Path, camera: str, begin: str, counts: list[float]) -> Path:
    moments = [datetime.fromisoformat(begin) + timedelta(seconds=second) for second in range(len(counts))]
    lines = [
        record(second, count, camera=camera, time=moment.isoformat())
        for (second, count), moment in zip(enumerate(counts), moments, strict=True)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_recordings_of_one_camera_are_one_series(tmp_path: Path) -> None:
    files = [
        write_hour(tmp_path / "b.jsonl", "gate", "2026-05-01T08:00:03+00:00", [4, 5, 6]),  # follows at once
        write_hour(tmp_path / "a.jsonl", "gate", "2026-05-01T08:00:00+00:00", [1, 2, 3]),
        write_hour(tmp_path / "c.jsonl", "gate", "2026-05-01T09:00:00+00:00", [7, 8]),  # after an hour
        write_hour(tmp_path / "d.jsonl", "hall", "2026-05-01T08:00:00+00:00", [10] * 6),
    ]
    hall, gate = sorted(load_all(files), key=lambda line: line.label, reverse=True)
    assert (hall.label, gate.label) == ("hall", "gate")
    assert [None if isnan(count) else count for count in gate.count] == [1, 2, 3, 4, 5, 6, None, 7, 8]
    known = [count for count in total([gate, hall]).count if not isnan(count)]
    assert known == [11, 12, 13, 14, 15, 16]


def test_recordings_without_a_camera_or_a_clock_stay_apart(tmp_path: Path) -> None:
    for folder in ("north", "south"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_text(json.dumps(record(0, 1.0)) + "\n")
    assert len(load_all([tmp_path / "north" / "a.jsonl", tmp_path / "south" / "a.jsonl"])) == 2


def test_the_sum_holds_each_cameras_newest_count() -> None:
    north, south = series("north", [10, 11, 12]), series("south", [1, 2, 3], start=0.5)
    whole = total([north, south])
    assert whole.seconds == [0, 0.5, 1, 1.5, 2, 2.5]
    assert isnan(whole.count[0])  # south was not counted yet
    assert whole.count[1:] == [11, 12, 13, 14, 15]


def test_the_sum_is_unknown_while_one_camera_is() -> None:
    whole = total([series("north", [10] * 12), series("south", [1, None, None, 2, *[None] * 8])])
    assert [isnan(count) for count in whole.count] == [False, True, True, False, *[True] * 8]
    ended = total([series("north", [10] * 12), series("south", [1, 2, 3])])
    assert [isnan(count) for count in ended.count] == [False] * 6 + [True] * 6  # three spacings after its last count


@given(st.lists(st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=8), min_size=1, max_size=3))
def test_a_known_sum_is_never_below_any_of_its_cameras(counts: list[list[float | None]]) -> None:
    lines = [series(str(number), values) for number, values in enumerate(counts)]
    whole = total(lines)
    for second, value in zip(whole.seconds, whole.count, strict=True):
        for line in lines:
            if second in line.seconds and not isnan(value):
                assert value >= line.count[line.seconds.index(second)] - 1e-9


def test_recordings_with_and_without_a_clock_are_not_added_up() -> None:
    clock = Series("clock")
    clock.add(record(0, 1, time="2026-05-01T08:00:00Z"))
    with pytest.raises(InputError, match="A sum needs recordings with a clock"):
        total([clock, series("gate", [1])])
