"""Counts over time: written with their roll-ups in one transaction, read as they were or in buckets.

A count that is handed in twice (the same camera, zone and millisecond) is kept once. Buckets exist only where
there were counts: a gap is a gap.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Table, case, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from uepnet.service.cameras.database import BUCKETS, Database, counts, series

COLUMNS = (
    "time",
    "zone",
    "mean",
    "min",
    "max",
    "counts",
    "low",
    "high",
    "people_per_square_metre",
    "max_per_square_metre",
)
Resolution = Literal["raw", "minute", "hour", "day"]
ROWS_AT_ONCE = 500  # below SQLite's limit of variables in one statement


class Reading(NamedTuple):
    """One count of a camera's frame (zone "") or of one of its zones."""

    camera: str
    zone: str
    time: int  # milliseconds since 1970
    people: float
    low: float | None
    high: float | None
    density: float | None  # people per square metre


class Point(NamedTuple):
    """A count, or a bucket of counts; the fields of a bucket that begin at its `time`."""

    zone: str
    time: int
    mean: float
    least: float
    most: float
    number: int
    low: float | None
    high: float | None
    density: float | None
    densest: float | None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each resolution is kept, in seconds; None for ever."""

    raw: float | None
    minute: float | None
    hour: float | None
    day: float | None = None


class History:
    def __init__(self, database: Database) -> None:
        self._database = database
        dialect = postgresql if database.shared else sqlite
        self._insert = dialect.insert
        self._series: dict[tuple[str, str], int] = {}

    def add(self, connection: Connection, readings: Sequence[Reading]) -> int:
        """Insert counts and add them to their buckets; how many of them were new."""
        distinct = {(self._series_id(connection, one.camera, one.zone), one.time): one for one in readings}
        new: list[tuple[int, Reading]] = []
        keys = sorted(distinct)  # replicas lock rows in the same order
        for start in range(0, len(keys), ROWS_AT_ONCE):
            new += self._insert_counts(connection, {key: distinct[key] for key in keys[start : start + ROWS_AT_ONCE]})
        for table, length in BUCKETS.values():
            self._add_to_buckets(connection, table, length, new)
        return len(new)

    def forget_series(self) -> None:
        """After a transaction that failed: its new series do not exist."""
        self._series.clear()

    def points(
        self,
        connection: Connection,
        camera: str,
        start: int,
        end: int,
        resolution: Resolution,
        most: int | None = None,
        after: Point | None = None,
    ) -> Iterator[Point]:
        """Counts or buckets with start <= time < end, ordered by zone (the frame first) and time.

        `after` is the last one of the page before.
        """
        names = connection.execute(select(series.c.id, series.c.zone).where(series.c.camera == camera)).all()
        left = most
        for number, zone in sorted(names, key=lambda row: str(row[1])):
            if after is not None and zone < after.zone:
                continue
            first = after.time + 1 if after is not None and zone == after.zone else start
            table = counts if resolution == "raw" else BUCKETS[resolution][0]
            query = select(table).where(table.c.series == number, table.c.time >= first, table.c.time < end)
            query = query.order_by(table.c.time).limit(left)
            for row in connection.execution_options(yield_per=2000).execute(query).mappings():
                yield _count_point(zone, row) if resolution == "raw" else _bucket_point(zone, row)
                left = None if left is None else left - 1

    def prune(self, retention: Retention, now: float | None = None) -> int:
        """Delete what is older than its retention, one series at a time so that writers wait for little."""
        now = time.time() if now is None else now
        with self._database.reading() as connection:
            numbers = list(connection.execute(select(series.c.id)).scalars())
        deleted = 0
        kept: tuple[tuple[Table, float | None], ...] = (
            (counts, retention.raw),
            *((table, getattr(retention, name)) for name, (table, _) in BUCKETS.items()),
        )
        for table, seconds in kept:
            if seconds is None:
                continue
            oldest = int(1000 * (now - seconds))
            for number in numbers:
                with self._database.writing() as connection:
                    done = connection.execute(delete(table).where(table.c.series == number, table.c.time < oldest))
                    deleted += done.rowcount
        return deleted

    def _series_id(self, connection: Connection, camera: str, zone: str) -> int:
        known = self._series.get((camera, zone))
        if known is not None:
            return known
        connection.execute(self._insert(series).values(camera=camera, zone=zone).on_conflict_do_nothing())
        where = (series.c.camera == camera) & (series.c.zone == zone)
        found = int(connection.execute(select(series.c.id).where(where)).scalar_one())
        self._series[camera, zone] = found
        return found

    def _insert_counts(
        self, connection: Connection, readings: dict[tuple[int, int], Reading]
    ) -> list[tuple[int, Reading]]:
        """Those that were not there yet, each with its series."""
        rows = [
            {"series": number, "time": moment, "people": one.people, "low": one.low, "high": one.high}
            | {"density": one.density}
            for (number, moment), one in readings.items()
        ]
        statement = self._insert(counts).on_conflict_do_nothing().returning(counts.c.series, counts.c.time)
        inserted = connection.execute(statement, rows).all()
        return [(number, readings[number, moment]) for number, moment in inserted]

    def _add_to_buckets(
        self, connection: Connection, table: Table, length: int, new: Sequence[tuple[int, Reading]]
    ) -> None:
        sums: dict[tuple[int, int], dict[str, Any]] = {}
        for number, one in new:
            key = (number, one.time - one.time % length)
            sums[key] = _added(sums.get(key), key, one)
        rows = [sums[key] for key in sorted(sums)]
        if not rows:
            return
        # One statement for all rows, and many values: it is compiled once and then taken from a cache.
        statement = self._insert(table)
        given, here = statement.excluded, table.c
        added = ("number", "total", "ranged", "low", "high", "measured", "density")
        changes: dict[str, Any] = {name: here[name] + given[name] for name in added}
        changes["least"] = case((given.least < here.least, given.least), else_=here.least)
        for name in ("most", "densest"):
            changes[name] = case((given[name] > here[name], given[name]), else_=here[name])
        connection.execute(statement.on_conflict_do_update(index_elements=["series", "time"], set_=changes), rows)


def _added(before: dict[str, Any] | None, key: tuple[int, int], one: Reading) -> dict[str, Any]:
    """A bucket with one more count in it."""
    ranged, measured = one.low is not None and one.high is not None, one.density is not None
    alone: dict[str, Any] = {
        "series": key[0],
        "time": key[1],
        "number": 1,
        "total": one.people,
        "least": one.people,
        "most": one.people,
        "ranged": int(ranged),
        "low": one.low if ranged else 0.0,
        "high": one.high if ranged else 0.0,
        "measured": int(measured),
        "density": one.density or 0.0,
        "densest": one.density or 0.0,
    }
    if before is None:
        return alone
    joined = {name: before[name] + alone[name] for name in ("number", "total", "ranged", "low", "high", "measured")}
    joined["density"] = before["density"] + alone["density"]
    joined["least"] = min(before["least"], alone["least"])
    joined |= {name: max(before[name], alone[name]) for name in ("most", "densest")}
    return alone | joined


def _count_point(zone: str, row: Any) -> Point:
    people, density = row["people"], row["density"]
    return Point(zone, row["time"], people, people, people, 1, row["low"], row["high"], density, density)


def _bucket_point(zone: str, row: Any) -> Point:
    ranged, measured = row["ranged"], row["measured"]
    return Point(
        zone,
        row["time"],
        row["total"] / row["number"],
        row["least"],
        row["most"],
        row["number"],
        row["low"] / ranged if ranged else None,
        row["high"] / ranged if ranged else None,
        row["density"] / measured if measured else None,
        row["densest"] if measured else None,
    )


def csv_row(point: Point) -> list[object]:
    """The values of COLUMNS; the zone of the whole frame is empty."""
    moment = datetime.fromtimestamp(point.time / 1000, UTC).isoformat(timespec="milliseconds")
    return [moment.replace("+00:00", "Z"), point.zone, *point[2:]]
