"""POST /v1/count and /v1/count/batch."""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from uepnet.model.zones import Zone, load_zones
from uepnet.service.answers import Format, MapKind, View, negotiate, npy, picture
from uepnet.service.counting import Counted, Many, count_bytes
from uepnet.service.engine import Engine
from uepnet.service.forms import Part, is_form, parse_form
from uepnet.service.openapi import BATCH_BODY, COUNT_BODY, COUNT_RESPONSES, problems
from uepnet.service.problems import Refused, problem
from uepnet.service.schemas import (
    BatchAnswer,
    BatchEntry,
    Camera,
    CameraName,
    CountAnswer,
)
from uepnet.service.serving import Serving
from uepnet.service.tile_queue import Job

MAX_ZONES_BYTES = 2**20  # room for all zones that are allowed, with every corner they may have

router = APIRouter(tags=["counting"])


@router.post(
    "/v1/count",
    summary="Count the people in one image",
    response_model=CountAnswer,
    openapi_extra=COUNT_BODY,
    responses=COUNT_RESPONSES,
)
async def count(
    request: Request,
    camera: Annotated[CameraName | None, Query(description="keep this count as the camera's latest")] = None,
    view: Annotated[View, Query(description="of a PNG: image with heat map, or the bare heat map")] = "overlay",
    map: Annotated[MapKind, Query(description="of an NPY: people per cell, or per pixel")] = "count",
    include: Annotated[Literal["map"] | None, Query(description="of JSON: add the count map")] = None,
) -> Response:
    serving: Serving = request.app.state.serving
    wanted = negotiate(request.headers.get("accept", ""))
    serving.check_open()
    if camera is not None:
        serving.cameras.check_room(camera)
    async with serving.house.body(request) as body:
        content, zones = await _image_and_zones(request, body)
        del body

        def work(engine: Engine, job: Job) -> tuple[Counted, bytes]:
            counted, image = count_bytes(serving, engine, job, content, zones)
            if wanted == "application/json":
                return counted, b""
            with serving.slot(job):
                if wanted == "image/png":
                    return counted, picture(counted.count, image, view, zones)
                return counted, npy(counted.count, map)

        counted, encoded = (await serving.run(request, work))[0]
    answer = counted.answer(request.state.started, request.state.request_id, with_map=include == "map")
    _log(request, counted, camera)
    if camera is not None:
        serving.cameras.note(_camera(camera, answer))
    return _response(answer, encoded, wanted)


@router.post(
    "/v1/count/batch",
    summary="Count the people in each of many images",
    response_model=BatchAnswer,
    openapi_extra=BATCH_BODY,
    responses=problems(408, 413, 415, 422, 429, 503, 504),
)
async def count_batch(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    serving.check_open()
    async with serving.house.body(request) as body:
        parts, zones = await _images_and_zones(request, body, serving.settings.max_batch_images)
        del body
        many = Many(serving, [part.content for part in parts], zones)
        await serving.run(request, many.work, most=len(parts))
    entries = []
    for number, (part, result) in enumerate(zip(parts, many.results, strict=True)):
        name = part.filename or str(number)
        if isinstance(result, Counted):
            answer = result.answer(request.state.started, request.state.request_id)
            entries.append(BatchEntry(name=name, answer=answer))
        else:
            entries.append(BatchEntry(name=name, problem=problem(result, request.state.request_id)))
    request.state.log = {"images": len(parts)}
    answers = BatchAnswer(results=entries, request_id=request.state.request_id)
    without_maps = {"results": {"__all__": {"answer": {"map"}}}}  # a batch has none
    return Response(answers.model_dump_json(exclude=without_maps), media_type="application/json")


async def _image_and_zones(request: Request, body: bytes) -> tuple[bytes | bytearray, tuple[Zone, ...]]:
    content_type = request.headers.get("content-type", "")
    if is_form(content_type):
        parts, zones = await _images_and_zones(request, body, 1)
        if parts[0].name != "image":
            raise Refused("wrong-request", "The form's parts are image and, at choice, zones.")
        return parts[0].content, zones
    if not content_type.lower().startswith(("image/", "application/octet-stream")):
        raise Refused(
            "unsupported-media-type",
            "Send the image as the body with its Content-Type (image/jpeg, say), or as multipart/form-data.",
        )
    if not body:
        raise Refused("wrong-image", "The body is empty where an image was expected.")
    return body, ()


async def _images_and_zones(request: Request, body: bytes, max_images: int) -> tuple[list[Part], tuple[Zone, ...]]:
    """The parts of a form: `zones`, and images."""
    content_type = request.headers.get("content-type", "")
    if not is_form(content_type):
        raise Refused("unsupported-media-type", "Send the images as multipart/form-data.")
    parts = await asyncio.to_thread(parse_form, body, content_type, max_images + 1)
    images = [part for part in parts if part.name != "zones"]
    if not 1 <= len(images) <= max_images:
        few = "one image" if max_images == 1 else f"1 to {max_images} images"
        raise Refused("wrong-request", f"The form must have {few}, not {len(images)}.")
    # In a thread, too: whether a polygon crosses itself is milliseconds of work.
    return images, await asyncio.to_thread(_zones, [part for part in parts if part.name == "zones"])


def _zones(parts: Sequence[Part]) -> tuple[Zone, ...]:
    if not parts:
        return ()
    if len(parts) > 1:
        raise Refused("wrong-request", "The form may have one part called zones.")
    content = parts[0].content
    if len(content) > MAX_ZONES_BYTES:
        raise Refused("wrong-zones", f"Zones may have at most {MAX_ZONES_BYTES} bytes.")
    return load_zones(content.decode("utf-8", "replace"))


def _response(answer: CountAnswer, encoded: bytes, wanted: Format) -> Response:
    if wanted == "application/json":
        content = answer.model_dump_json(exclude={"map"} if answer.map is None else None)
        return Response(content, media_type=wanted)
    headers = {"X-Count": repr(answer.count)}
    if answer.range is not None:
        headers |= {"X-Range-Low": repr(answer.range.low), "X-Range-High": repr(answer.range.high)}
    return Response(encoded, media_type=wanted, headers=headers)


def _camera(name: str, answer: CountAnswer) -> Camera:
    shared = answer.model_dump(include=set(Camera.model_fields))
    return Camera(camera=name, time=time.time(), **shared)


def _log(request: Request, counted: Counted, camera: str | None) -> None:
    fields: dict[str, Any] = {
        "width": counted.count.width,
        "height": counted.count.height,
        "count": round(counted.count.count, 2),
        "decode_ms": round(1000 * counted.decode_seconds, 1),
        "queue_ms": round(1000 * counted.queue_seconds, 1),
        "inference_ms": round(1000 * counted.inference_seconds, 1),
    }
    request.state.log = fields if camera is None else {**fields, "camera": camera}
