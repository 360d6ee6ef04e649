"""POST /v1/count and /v1/count/batch."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray
from starlette.responses import Response, StreamingResponse

from uepnet.model.cameras import CameraName
from uepnet.model.count import Count
from uepnet.model.zones import Zone, load_zones
from uepnet.service.cameras.measure import Measured, measure
from uepnet.service.core.counting import Counting, ImageBatch, ImageResult
from uepnet.service.errors import Refused, problem
from uepnet.service.http.context import Context, RequestContext
from uepnet.service.http.moments import CaptureTime, seconds
from uepnet.service.http.multipart import FormPart, is_form, parse_form
from uepnet.service.http.openapi import BATCH_BODY, COUNT_BODY, COUNT_RESPONSES, problems
from uepnet.service.http.responses import (
    DecodingName,
    MapKind,
    View,
    class_maps,
    density_npy,
    largest_picture,
    negotiate,
    npy,
    picture,
)
from uepnet.service.schemas import (
    BatchAnswer,
    BatchEntry,
    CountAnswer,
)

TEXT_PER_CELL = 32  # bytes of a map as JSON, and what making it takes; as an array it takes less
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
    context: Context,
    camera: Annotated[CameraName | None, Query(description="a camera's name: its settings apply to the image")] = None,
    time: Annotated[CaptureTime | None, Query(description="with camera: when the image was taken, ISO 8601")] = None,
    view: Annotated[View, Query(description="for a PNG answer: image with heat map, or heat map alone")] = "overlay",
    map: Annotated[
        MapKind, Query(description="for an NPY answer: people per cell, people per pixel, or the class of each cell")
    ] = "count",
    include: Annotated[Literal["map"] | None, Query(description="for a JSON answer: add the count map")] = None,
    decoding: Annotated[
        DecodingName | None, Query(description="argmax: the paper's decoding, without a range; without it the model's")
    ] = None,
) -> Response:
    app = context.app
    wanted = negotiate(context.headers.get("accept", ""))
    if camera is None and time is not None:
        raise Refused("wrong-request", "The time of an image is kept with a camera: give its name, too.")
    settings = None
    if camera is not None:
        app.cameras.check_room(camera)
        settings = app.room.settings_of(camera)
    async with context.body() as body:
        content, posted = await _image_and_zones(context, body)
        del body
        zones = (*settings.zones, *posted) if settings else posted
        masks = settings.masks() if settings else ()

        def work(counting: Counting) -> tuple[ImageResult, bytes, Measured | None]:
            result, image = counting.count_bytes(content, zones, masks, decoding)
            if settings is None and wanted != "image/png":
                return result, b"", None
            with counting.drawing(result.count.width * result.count.height if wanted == "image/png" else 0):
                measured = measure(settings, zones, result.count, image) if settings else None
                if wanted != "image/png":
                    return result, b"", measured
                return result, _picture(context, counting, result.count, image, view, zones), measured

        result, encoded, measured = (await context.run(work))[0]
    if (wanted == "application/json" and include) or (wanted == "application/x-npy" and map != "density"):
        context.reserve(TEXT_PER_CELL * result.count.count_map.size)
    answer = result.answer(context.started, context.request_id, with_map=include == "map")
    context.log_fields |= _log_fields(result, camera)
    if camera is not None and measured is not None:
        warnings = [*answer.warnings, *measured.warnings]
        answer = answer.model_copy(update={"zones": list(measured.zones), "warnings": warnings})
        app.room.note(measured.camera(camera, answer, None if time is None else seconds(time)), measured.picture)
    if wanted == "application/json":
        text = answer.model_dump_json(exclude={"map"} if answer.map is None else None)
        return Response(text, media_type=wanted)
    headers = _count_headers(answer)
    if wanted == "image/png":
        return Response(encoded, media_type=wanted, headers=headers)
    if map != "density":
        array = result.count.count_map if map == "count" else class_maps(result.count)
        return Response(npy(array), media_type=wanted, headers=headers)
    length, pieces = density_npy(result.count)
    return StreamingResponse(pieces, media_type=wanted, headers={**headers, "Content-Length": str(length)})


@router.post(
    "/v1/count/batch",
    summary="Count the people in each of many images",
    response_model=BatchAnswer,
    openapi_extra=BATCH_BODY,
    responses=problems(408, 413, 415, 422, 429, 503, 504),
)
async def count_batch(
    context: Context,
    decoding: Annotated[
        DecodingName | None, Query(description="argmax: the paper's decoding, without a range; without it the model's")
    ] = None,
) -> Response:
    context.app.model.ready().read_by(decoding)  # a decoding that the model lacks fails the request, not each image
    async with context.body() as body:
        parts, zones = await _images_and_zones(context, body, context.app.settings.max_batch_images)
        del body
        batch = ImageBatch([part.content for part in parts], context.app.settings.max_pixels, zones, decoding)
        await context.run(batch.work_off, most=len(parts))
    entries = []
    for number, (part, result) in enumerate(zip(parts, batch.results, strict=True)):
        name = part.filename or str(number)
        if isinstance(result, ImageResult):
            entries.append(BatchEntry(name=name, answer=result.answer(context.started, context.request_id)))
        else:
            entries.append(BatchEntry(name=name, problem=problem(result, context.request_id)))
    context.log_fields |= {"images": len(parts)}
    answers = BatchAnswer(results=entries, request_id=context.request_id)
    without_maps = {"results": {"__all__": {"answer": {"map"}}}}  # a batch has none
    return Response(answers.model_dump_json(exclude=without_maps), media_type="application/json")


async def _image_and_zones(context: RequestContext, body: bytes) -> tuple[bytes | bytearray, tuple[Zone, ...]]:
    content_type = context.headers.get("content-type", "")
    if is_form(content_type):
        parts, zones = await _images_and_zones(context, body, 1)
        if parts[0].name != "image":
            raise Refused("wrong-request", "The form has one part called image, and may have one called zones.")
        return parts[0].content, zones
    if not content_type.lower().startswith(("image/", "application/octet-stream")):
        raise Refused(
            "unsupported-media-type",
            "Send the image as the body with its Content-Type (image/jpeg, say), or as multipart/form-data.",
        )
    if not body:
        raise Refused("wrong-image", "The body is empty where an image was expected.")
    return body, ()


async def _images_and_zones(
    context: RequestContext, body: bytes, max_images: int
) -> tuple[list[FormPart], tuple[Zone, ...]]:
    """The parts of a form: `zones`, and images."""
    content_type = context.headers.get("content-type", "")
    if not is_form(content_type):
        raise Refused("unsupported-media-type", "Send the images as multipart/form-data.")

    def parse(counting: Counting) -> tuple[list[FormPart], tuple[Zone, ...]]:
        parts = parse_form(body, content_type, max_images + 1)
        images = [part for part in parts if part.name != "zones"]
        if not 1 <= len(images) <= max_images:
            few = "one image" if max_images == 1 else f"1 to {max_images} images"
            raise Refused("wrong-request", f"The form must have {few}, not {len(images)}.")
        return images, _zones([part for part in parts if part.name == "zones"])

    # Takes a place: splitting a large form and checking many polygons may take a second.
    return (await context.run(parse, counts=False))[0]


def _zones(parts: Sequence[FormPart]) -> tuple[Zone, ...]:
    if not parts:
        return ()
    if len(parts) > 1:
        raise Refused("wrong-request", "The form may have one part called zones.")
    content = parts[0].content
    if len(content) > MAX_ZONES_BYTES:
        raise Refused("wrong-zones", f"Zones may have at most {MAX_ZONES_BYTES} bytes.")
    return load_zones(content.decode("utf-8", "replace"))


def _picture(
    context: RequestContext,
    counting: Counting,
    count: Count,
    image: NDArray[np.uint8],
    view: View,
    zones: tuple[Zone, ...],
) -> bytes:
    """The picture as PNG. Memory for it is reserved before it is drawn."""
    most = largest_picture(count)
    context.reserve(most)
    encoded = picture(count, image, view, zones, counting.job.check)
    context.give_back(most - len(encoded))
    return encoded


def _count_headers(answer: CountAnswer) -> dict[str, str]:
    headers = {"X-Count": repr(answer.count)}
    if answer.range is not None:
        headers |= {"X-Range-Low": repr(answer.range.low), "X-Range-High": repr(answer.range.high)}
    return headers


def _log_fields(result: ImageResult, camera: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "width": result.count.width,
        "height": result.count.height,
        "count": round(result.count.count, 2),
        "decode_ms": round(1000 * result.decode_seconds, 1),
        "queue_ms": round(1000 * result.queue_seconds, 1),
        "inference_ms": round(1000 * result.inference_seconds, 1),
    }
    return fields if camera is None else {**fields, "camera": camera}
