"""The history: what is written comes back, in buckets too; a full disk and a killed process lose nothing old."""

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, func, select
from support.servers import eventually

from uepnet.model.errors import InputError, OutputError
from uepnet.service.cameras.database import MIGRATIONS, Database, counts
from uepnet.service.cameras.history import History, Point, Reading, Resolution, Retention
from uepnet.service.cameras.writer import Writer
from uepnet.service.metrics import Metrics

HOUR = 3_600_000
FOREVER = Retention(raw=None, minute=None, hour=None)


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'history.sqlite'}"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(url(tmp_path))
    yield opened
    opened.close()


def reading(time: int, people: float, camera: str = "gate", zone: str = "", low: float | None = None) -> Reading:
    return Reading(camera, zone, time, people, low, None if low is None else people + 1, None)


def add(database: Database, *readings: Reading) -> int:
    with database.writing() as connection:
        return History(database).add(connection, readings)


def points(database: Database, resolution: Resolution, camera: str = "gate") -> list[Point]:
    with database.reading() as connection:
        return list(History(database).points(connection, camera, 0, 10**15, resolution))


@pytest.mark.parametrize("resolution", ["raw", "minute"])
def test_pages_are_the_whole(database: Database, resolution: Resolution) -> None:
    add(database, *(reading(61_000 * n, n, zone=zone) for n in range(7) for zone in ("", "door", "gate")))
    history, pages = History(database), list[Point]()
    with database.reading() as connection:
        while page := list(history.points(connection, "gate", 0, 10**15, resolution, 4, pages[-1] if pages else None)):
            assert len(page) == min(4, 21 - len(pages))
            pages += page
    assert pages == points(database, resolution)


def test_counts_come_back_by_zone_and_time(database: Database) -> None:
    add(database, reading(2000, 5, low=4), reading(1000, 3), reading(1000, 2, zone="door"), reading(1, 9, "other"))
    assert points(database, "raw") == [
        Point("", 1000, 3, 3, 3, 1, None, None, None, None),
        Point("", 2000, 5, 5, 5, 1, 4, 6, None, None),
        Point("door", 1000, 2, 2, 2, 1, None, None, None, None),
    ]


def test_a_count_that_comes_twice_is_kept_once(database: Database) -> None:
    assert add(database, reading(1000, 3), reading(1000, 3)) == 1
    assert add(database, reading(1000, 3), reading(2000, 3)) == 1
    assert [point.number for point in points(database, "minute")] == [2]


def test_buckets_exist_only_where_there_were_counts(database: Database) -> None:
    add(database, reading(HOUR, 4), reading(HOUR + 59_999, 8), reading(3 * HOUR, 0))
    assert [
        (point.time, point.mean, point.least, point.most, point.number) for point in points(database, "minute")
    ] == [
        (HOUR, 6, 4, 8, 2),
        (3 * HOUR, 0, 0, 0, 1),
    ]
    assert [point.time for point in points(database, "hour")] == [HOUR, 3 * HOUR]
    assert [(point.time, point.mean) for point in points(database, "day")] == [(0, 4)]


@settings(max_examples=15)
@given(
    rows=st.lists(st.tuples(st.integers(0, 200_000), st.floats(0, 1e5)), min_size=1, max_size=60),
    cut=st.integers(0, 60),
)
def test_buckets_equal_the_counts_however_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, float]], cut: int
) -> None:
    database = Database(url(tmp_path_factory.mktemp("law")))
    for part in (rows[:cut], rows[cut:]):
        add(database, *(reading(moment, people) for moment, people in part))
    kept = {point.time: point.mean for point in points(database, "raw")}
    assert set(kept) == {moment for moment, _ in rows}
    for bucket in points(database, "minute"):
        inside = [people for moment, people in kept.items() if bucket.time <= moment < bucket.time + 60_000]
        assert bucket.number == len(inside)
        assert bucket.mean == pytest.approx(sum(inside) / len(inside))
        assert (bucket.least, bucket.most) == (min(inside), max(inside))
    database.close()


def test_what_is_older_than_its_retention_goes(database: Database) -> None:
    add(database, reading(0, 1), reading(9 * HOUR, 2))
    deleted = History(database).prune(Retention(raw=3600, minute=None, hour=3600), now=10 * 3600)
    assert deleted == 2
    assert [point.time for point in points(database, "raw")] == [9 * HOUR]
    assert [point.time for point in points(database, "hour")] == [9 * HOUR]
    assert len(points(database, "minute")) == 2


def test_an_older_database_is_brought_up_to_date_and_keeps_its_counts(tmp_path: Path) -> None:
    old = Database(url(tmp_path), MIGRATIONS[:1])
    add(old, reading(1000, 3))
    old.close()
    new = Database(url(tmp_path))
    assert [point.mean for point in points(new, "raw")] == [3]
    new.close()
    with pytest.raises(InputError, match="has version 2, this uepnet knows up to 1"):
        Database(url(tmp_path), MIGRATIONS[:1])


@pytest.mark.parametrize("wrong", ["nonsense", "mysql://a/b", "sqlite://", "oracle+cx://a"])
def test_a_wrong_address_is_refused(wrong: str) -> None:
    with pytest.raises(InputError):
        Database(wrong)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_text("something else, and long enough to be read as a header of a file" * 20)
    with pytest.raises(OutputError, match="cannot be opened: file is not a database"):
        Database(url(tmp_path))


def test_a_full_disk_is_told_once_and_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database, metrics = Database(url(tmp_path)), Metrics()
    full = [True]

    @event.listens_for(database.engine, "begin")
    def limit(connection: object) -> None:
        pages = 1 if full[0] else 1_000_000  # at least what there is already
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]

    def value(name: str) -> float:
        return metrics.registry.get_sample_value(f"uepnet_history_{name}") or 0.0

    writer = Writer(database, History(database), metrics, FOREVER)
    rows = [reading(1000 * index, 5) for index in range(5000)]
    with caplog.at_level(logging.WARNING, logger="uepnet"):
        writer.put(*rows)
        eventually(lambda: value("errors_total") >= 2)
        assert (value("ok"), value("pending")) == (0, 5000)
        writer.put(reading(1, 6))
        full[0] = False
        eventually(lambda: value("written_total") == 5001)
    writer.stop()
    assert value("ok") == 1
    assert value("pending") == value("dropped_total") == 0
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2, told
    assert "disk is full" in told[0]
    assert "can be written again" in told[1]
    database.close()


def test_memory_stays_bounded_while_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uepnet.service.cameras.writer.MAX_PENDING", 100)
    database, metrics = Database(url(tmp_path)), Metrics()
    with database.writing():  # another process that writes: SQLite lets one in
        writer = Writer(database, History(database), metrics, FOREVER)
        writer.put(*(reading(index, 1) for index in range(50)))
        writer.put(*(reading(100 + index, 1) for index in range(120)))
        assert (metrics.registry.get_sample_value("uepnet_history_dropped_total") or 0) >= 20
    writer.stop()
    with database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(counts)).scalar_one() <= 150
    database.close()


KILLED = """
import itertools, sys, time
from uepnet.service.cameras.database import Database
from uepnet.service.cameras.history import History, Reading, Retention
from uepnet.service.cameras.writer import Writer
from uepnet.service.metrics import Metrics
database = Database(sys.argv[1])
writer = Writer(database, History(database), Metrics(), Retention(None, None, None))
for number in itertools.count():
    writer.put(Reading("gate", "", int(1000 * time.time()), number, None, None, None))
    print(time.time(), flush=True)
    time.sleep(0.02)
"""


def test_a_killed_process_loses_less_than_a_second(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, url(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        began = float(next(lines))
        last = next(moment for line in lines if (moment := float(line)) > began + 2)
        process.send_signal(signal.SIGKILL)
        last = max([last, *(float(line) for line in lines if line.endswith("\n"))])
    database = Database(url(tmp_path))
    kept = points(database, "raw")
    assert [int(point.mean) for point in kept] == list(range(len(kept)))
    assert last - kept[-1].time / 1000 < 1.0
    assert sum(point.number for point in points(database, "minute")) == len(kept)
    database.close()


def test_putting_never_waits_for_the_database(tmp_path: Path) -> None:
    database = Database(url(tmp_path))
    writer = Writer(database, History(database), Metrics(), FOREVER)
    with database.writing():
        for index in range(1000):
            writer.put(reading(index, 1))  # waiting would last until this transaction ends, which is never
    writer.stop()
    assert len(points(database, "raw")) == 1000
    database.close()
