"""Cameras and their events, the model and its reload, metrics."""

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError
from starlette.responses import Response, StreamingResponse

from uepnet.service.openapi import RELOAD_BODY, problems
from uepnet.service.problems import Refused
from uepnet.service.schemas import CamerasAnswer, ModelAnswer, ReloadRequest
from uepnet.service.serving import Serving

router = APIRouter()


@router.get(
    "/v1/cameras",
    tags=["cameras"],
    summary="The latest count of every camera",
    response_model=CamerasAnswer,
    responses=problems(),
)
async def cameras(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    answer = CamerasAnswer(cameras=serving.cameras.latest())
    return Response(answer.model_dump_json(), media_type="application/json")


@router.get(
    "/v1/events",
    tags=["cameras"],
    summary="Counts of cameras as they are made, as server-sent events",
    description="Each event is called `count`; its data is a camera as in /v1/cameras. The latest ones come first.",
    response_class=StreamingResponse,
    responses={
        200: {"description": "A stream without end", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **problems(429, 503),
    },
)
async def events(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    serving.house.check_draining()
    # X-Accel-Buffering: a proxy must hand events on as they come.
    headers = {"X-Accel-Buffering": "no"}
    stream = serving.cameras.listen().events()
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


@router.get(
    "/v1/model",
    tags=["model"],
    summary="The model that serves",
    response_model=ModelAnswer,
    responses=problems(503),
)
async def model(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    return Response(serving.ready_engine().describe().model_dump_json(), media_type="application/json")


@router.post(
    "/v1/model/reload",
    tags=["model"],
    summary="Load a model directory and serve it in place of the present one",
    description="Needs the admin key. Requests under way finish on the old model; a broken one changes nothing.",
    response_model=ModelAnswer,
    openapi_extra=RELOAD_BODY,
    responses=problems(403, 408, 409, 413, 415, 422, 429, 503),
)
async def reload(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    if not request.state.admin:
        raise Refused("forbidden", "Send the admin key; where none is configured, reloading is off.")
    async with serving.house.body(request) as body:
        try:
            asked = ReloadRequest.model_validate_json(body or b"{}")
        except ValidationError:
            raise Refused("wrong-request", 'The body must be JSON like {"path": "model-2"}, or empty.') from None
    engine = await serving.reload(asked.path)
    return Response(engine.describe().model_dump_json(), media_type="application/json")


@router.get(
    "/metrics",
    tags=["operations"],
    summary="Prometheus metrics",
    response_class=Response,
    responses={
        200: {"description": "Text format", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems(),
    },
)
async def metrics(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    return Response(serving.metrics.text(), media_type=CONTENT_TYPE_LATEST)
