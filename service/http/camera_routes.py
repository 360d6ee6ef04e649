"""Cameras: their state, settings and pictures, and the stream of events."""

import asyncio
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from uepnet.model.cameras import CameraName, CameraSettings, check_camera
from uepnet.model.validation import first_complaint, shown
from uepnet.service.cameras.measure import drawn
from uepnet.service.cameras.wire import CameraDetail, CameraStates
from uepnet.service.errors import Refused
from uepnet.service.http.context import Context, RequestContext
from uepnet.service.http.openapi import BINARY, inline, problems

router = APIRouter(tags=["cameras"])

NamePath = Annotated[CameraName, Path(description="the camera's name")]
SETTINGS_BODY = {
    "requestBody": {
        "required": True,
        "description": "All settings of the camera; what is left out gets its default.",
        "content": {"application/json": {"schema": inline(CameraSettings)}},
    }
}


@router.get("/v1/cameras", summary="The state of every camera", response_model=CameraStates, responses=problems(429))
async def cameras(context: Context) -> Response:
    text = await context.app.camera_states.get()
    context.reserve(len(text))
    return Response(text, media_type="application/json")


@router.get(
    "/v1/cameras/{name}",
    summary="One camera: its state and its settings",
    response_model=CameraDetail,
    responses=problems(404, 422),
)
async def camera(context: Context, name: NamePath) -> Response:
    return _detail(context, name)


@router.put(
    "/v1/cameras/{name}",
    summary="Set a camera's zones, ground, masks and limits",
    description="Needs the admin key. Kept in the history database; overrides the camera file, which is never written.",
    response_model=CameraDetail,
    openapi_extra=SETTINGS_BODY,
    responses=problems(403, 408, 409, 413, 415, 422, 429, 503),
)
async def put_camera(context: Context, name: NamePath) -> Response:
    _check_admin(context)
    async with context.small_body() as body:
        settings = await asyncio.to_thread(_settings, bytes(body))
    if not context.app.room.is_configured(name):
        context.app.room.cameras.check_room(name)
    context.app.room.change(name, settings)
    return _detail(context, name)


@router.delete(
    "/v1/cameras/{name}",
    summary="Forget changes of a camera: back to the camera file",
    description="Needs the admin key.",
    status_code=204,
    responses=problems(403, 404, 409, 422),
)
async def delete_camera(context: Context, name: NamePath) -> Response:
    _check_admin(context)
    if context.app.room.state(name) is None:
        raise _unknown()
    context.app.room.change(name, None)
    return Response(status_code=204)


@router.api_route("/v1/cameras/{name}", methods=["POST", "PATCH", "OPTIONS", "HEAD"], include_in_schema=False)
async def no_such_method(name: str) -> Response:
    """Starlette would name the methods of the first route alone."""
    raise HTTPException(405, headers={"Allow": "DELETE, GET, PUT"})


@router.get(
    "/v1/cameras/{name}/picture",
    summary="The latest picture of a camera that has keep_picture: true",
    response_class=Response,
    responses={
        200: {"description": "JPEG; masks are black", "content": {"image/jpeg": {"schema": BINARY}}},
        **problems(404, 422),
    },
)
async def camera_picture(
    context: Context,
    name: NamePath,
    view: Annotated[Literal["picture", "heat"], Query(description="the picture, or with its heat map")] = "heat",
) -> Response:
    kept = context.app.room.picture(name)
    if kept is None:
        raise Refused("not-found", "No picture of this camera is kept: set keep_picture: true, and wait for a frame.")
    content = kept.jpeg if view == "picture" else await context.app.answer(partial(drawn, kept))
    return Response(content, media_type="image/jpeg", headers={"X-Picture-Time": f"{kept.time:.3f}"})


@router.get(
    "/v1/events",
    summary="Counts and alerts as server-sent events",
    description="`count`: a camera as in /v1/cameras, first all that are known; `alert`: what webhooks get.",
    response_class=StreamingResponse,
    responses={
        200: {"description": "A stream without end", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **problems(429, 503),
    },
)
async def events(context: Context) -> Response:
    context.app.admission.check_draining()
    room = context.app.room
    listener = room.cameras.listen()
    for state in room.states():
        listener.put("count", state.camera, state.model_dump_json())
    # X-Accel-Buffering: a proxy must hand events on as they come.
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(listener.events(), media_type="text/event-stream", headers=headers)


def _detail(context: RequestContext, name: str) -> Response:
    state = context.app.room.state(name)
    if state is None:
        raise _unknown()
    room = context.app.room
    settings, overrides = room.settings_of(name), room.overrides_file(name)
    detail = CameraDetail(**state.model_dump(), settings=settings, overrides_file=overrides)
    return Response(detail.model_dump_json(), media_type="application/json")


def _settings(body: bytes) -> CameraSettings:
    """Checked like the camera file."""
    try:
        settings = CameraSettings.model_validate_json(body)
    except ValidationError as error:
        field, text = first_complaint(error)
        raise Refused("wrong-request", f"{shown(field or 'body')}: {text}.") from None
    check_camera(settings)
    return settings


def _check_admin(context: RequestContext) -> None:
    if not context.is_admin:
        raise Refused("forbidden", "Send the admin key; without a configured admin key, cameras cannot be changed.")


def _unknown() -> Refused:
    return Refused("not-found", "No camera has this name.")
