"""Alerts: which are open, which were, and that somebody has seen one."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from uepnet.service.cameras.wire import Alert, Alerts
from uepnet.service.http.context import Context
from uepnet.service.http.openapi import problems

router = APIRouter(tags=["cameras"])


@router.get("/v1/alerts", summary="Open and recent alerts", response_model=Alerts, responses=problems())
async def alerts(context: Context) -> Response:
    desk = context.app.room.desk
    answer = Alerts(open=desk.open(), recent=desk.recent())
    return Response(answer.model_dump_json(), media_type="application/json")


@router.post(
    "/v1/alerts/{id}/acknowledge",
    summary="Say that somebody has seen an alert",
    description="Any valid key may. It ends nothing: an alert ends when its limit is no longer reached.",
    response_model=Alert,
    responses=problems(404, 422),
)
async def acknowledge(
    context: Context, id: Annotated[str, Path(description="the alert's id", max_length=64)]
) -> Response:
    return Response(context.app.room.acknowledge(id).model_dump_json(), media_type="application/json")
