"""A camera's history as JSON or CSV."""

import csv
import io
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Annotated

from fastapi import APIRouter, Path, Query
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response, StreamingResponse

from uepnet.model.cameras import CameraName
from uepnet.service.cameras.control_room import ControlRoom
from uepnet.service.cameras.history import COLUMNS, Point, Resolution, csv_row
from uepnet.service.cameras.wire import HistoryAnswer, HistoryPoint, HistorySeries
from uepnet.service.errors import Refused
from uepnet.service.http.context import AppState, Context
from uepnet.service.http.moments import Moment, seconds
from uepnet.service.http.openapi import problems

MAX_POINTS = 50_000  # in one JSON answer; CSV has no bound, and is read in pages
PAGE_POINTS = 5_000
BYTES_PER_POINT = 1_000  # memory for a point while the JSON is made
DAY_SECONDS = 86_400.0

router = APIRouter(tags=["cameras"])


@router.get(
    "/v1/cameras/{name}/history",
    summary="A camera's counts over time",
    description="By Accept as JSON or as text/csv. Only what was counted is there: a gap is a gap. Times are UTC.",
    response_model=HistoryAnswer,
    responses={
        200: {"description": "Counts or buckets", "content": {"text/csv": {"schema": {"type": "string"}}}},
        **problems(404, 409, 413, 422, 429, 503),
    },
)
async def history(
    context: Context,
    name: Annotated[CameraName, Path(description="the camera's name")],
    start: Annotated[Moment | None, Query(description="first moment (default: 24 hours before the end)")] = None,
    end: Annotated[Moment | None, Query(description="the moment after the last (default: now)")] = None,
    resolution: Annotated[Resolution, Query(description="every count, or buckets")] = "minute",
) -> Response:
    room = context.app.room
    if room.history is None or room.database is None:
        raise Refused("history-off", "The history is off: start the service with a history database.")
    until = time.time() if end is None else seconds(end)
    since = until - DAY_SECONDS if start is None else seconds(start)
    if since >= until:
        raise Refused("wrong-request", "The start must lie before the end.")
    wants_csv = "text/csv" in context.headers.get("accept", "").lower()
    period = Period(room, name, since, until, resolution)
    try:
        points = await context.app.answer(partial(period.points, PAGE_POINTS if wants_csv else MAX_POINTS + 1))
    except SQLAlchemyError:
        raise Refused("not-ready", "The history database does not answer at the moment.") from None
    if not points and room.state(name) is None:
        raise Refused("not-found", "No camera has this name.")
    if wants_csv:
        headers = {"Content-Disposition": 'attachment; filename="history.csv"'}
        return StreamingResponse(
            _csv(context.app, period, points), media_type="text/csv; charset=utf-8", headers=headers
        )
    if len(points) > MAX_POINTS:
        raise Refused(
            "wrong-request",
            f"These are more than {MAX_POINTS} points: ask for a shorter time, a coarser resolution, or text/csv.",
        )
    context.reserve(BYTES_PER_POINT * len(points))
    text = await context.app.answer(partial(period.json, points))
    context.give_back(max(0, BYTES_PER_POINT * len(points) - len(text)))
    return Response(text, media_type="application/json")


@dataclass(frozen=True, slots=True)
class Period:
    """What is asked for: the counts of a camera between two moments. Thread: a worker's."""

    room: ControlRoom
    camera: str
    start: float
    end: float
    resolution: Resolution

    def points(self, most: int, after: Point | None = None) -> list[Point]:
        assert self.room.history is not None and self.room.database is not None
        start, end = int(1000 * self.start), int(1000 * self.end)
        with self.room.database.reading() as connection:
            history = self.room.history
            return list(history.points(connection, self.camera, start, end, self.resolution, most, after))

    def json(self, points: list[Point]) -> str:
        series = _series(points)
        resolution = self.resolution
        answer = HistoryAnswer(camera=self.camera, start=self.start, end=self.end, resolution=resolution, series=series)
        return answer.model_dump_json()


def _series(points: list[Point]) -> list[HistorySeries]:
    groups = groupby(points, key=lambda point: point.zone)
    return [HistorySeries(zone=zone or None, points=[_wire(point) for point in group]) for zone, group in groups]


def _wire(point: Point) -> HistoryPoint:
    return HistoryPoint(
        time=point.time / 1000,
        mean=point.mean,
        min=point.least,
        max=point.most,
        counts=point.number,
        low=point.low,
        high=point.high,
        people_per_square_metre=point.density,
        max_per_square_metre=point.densest,
    )


async def _csv(app: AppState, period: Period, points: list[Point]) -> AsyncIterator[str]:
    """Page by page: a camera with many zones may have millions of counts."""
    yield csv_line(COLUMNS)
    while points:
        yield await app.answer(partial(_csv_lines, points))
        if len(points) < PAGE_POINTS:
            return
        points = await app.answer(partial(period.points, PAGE_POINTS, points[-1]))


def _csv_lines(points: list[Point]) -> str:
    return "".join(csv_line(csv_row(point)) for point in points)


def csv_line(row: Sequence[object]) -> str:
    file = io.StringIO()
    csv.writer(file).writerow(row)
    return file.getvalue()
