"""The Open Inference Protocol, which clients of KServe and Triton speak.

One model, `uepnet`: a BYTES tensor `images` of encoded images in; `count` [n], `range` [n, 2] (NaN, in JSON null,
where the model is not calibrated), `count_map` [n, rows, columns] padded with zeros to the largest image, and
`cells` [n, 2] (the rows and columns that are the image's own) out. Only if asked for by name: `classes`
[n, heads, rows, columns], the class of each cell, and `class_cells` [n, 2]. The parameter `decoding` chooses argmax.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from starlette.responses import JSONResponse, Response

from uepnet import __version__
from uepnet.service.core.counting import ImageBatch, ImageResult
from uepnet.service.errors import Refused
from uepnet.service.http.context import Context, RequestContext
from uepnet.service.http.openapi import inline, problems
from uepnet.service.http.protocol_codec import INPUT, InferRequest, OutputName, encode_response, parse_request
from uepnet.service.http.responses import class_maps

NAME = "uepnet"
OUTPUTS: dict[OutputName, tuple[str, list[int]]] = {
    "count": ("FP32", [-1]),
    "range": ("FP32", [-1, 2]),
    "count_map": ("FP32", [-1, -1, -1]),
    "cells": ("INT32", [-1, 2]),
    "classes": ("UINT8", [-1, -1, -1, -1]),
    "class_cells": ("INT32", [-1, 2]),
}
BINARY = {"schema": {"type": "string", "format": "binary"}}
INFER_BODY = {
    "requestBody": {
        "required": True,
        "description": "Images as base64 in the JSON, or raw behind it (binary extension).",
        "content": {
            "application/json": {
                "schema": inline(InferRequest),
                "example": {"inputs": [{"name": INPUT, "shape": [1], "datatype": "BYTES", "data": ["/9j/4A=="]}]},
            },
            "application/octet-stream": BINARY,
        },
    }
}
INFER_RESPONSES = {
    200: {
        "description": "The tensors asked for",
        "content": {"application/json": {"schema": {"type": "object"}}, "application/octet-stream": BINARY},
    },
    **problems(408, 413, 415, 422, 429, 503, 504),
}

router = APIRouter(prefix="/v2", tags=["open inference protocol"])


@router.get("", summary="Server metadata", responses=problems())
async def server_metadata() -> dict[str, Any]:
    return {"name": NAME, "version": __version__, "extensions": ["binary_tensor_data"]}


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live", summary="Alive: the process need not be restarted; never asks for a key")
async def live(context: Context) -> Response:
    if not context.app.model.is_alive:
        raise Refused("not-ready", "The device has failed.")
    return JSONResponse({"live": True})


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready", summary="Ready: requests are taken", responses=problems(503))
async def ready(context: Context) -> Response:
    _check_ready(context)
    return JSONResponse({"ready": True})


@router.get(f"/models/{NAME}/ready", summary="The model is ready", responses=problems(503))
async def model_ready(context: Context) -> Response:
    _check_ready(context)
    return JSONResponse({"name": NAME, "ready": True})


@router.get(f"/models/{NAME}", summary="Inputs and outputs of the model", responses=problems(503))
async def model_metadata(context: Context) -> dict[str, Any]:
    return {
        "name": NAME,
        "versions": [context.app.model.ready().artifact.version],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": INPUT, "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": name, "datatype": kind, "shape": shape} for name, (kind, shape) in OUTPUTS.items()],
    }


@router.post(
    f"/models/{NAME}/infer",
    summary="Count encoded images",
    response_class=Response,
    openapi_extra=INFER_BODY,
    responses=INFER_RESPONSES,
)
async def infer(context: Context) -> Response:
    async with context.body() as body:
        asked, images = await _parsed(context, body)
        del body
        context.app.model.ready().read_by(asked.parameters.decoding)
        batch = ImageBatch(images, context.app.settings.max_pixels, decoding=asked.parameters.decoding)
        await context.run(batch.work_off, most=len(images))
    results = []
    for result in batch.results:
        if not isinstance(result, ImageResult):
            raise result
        results.append(result)
    context.log_fields |= {"images": len(images)}
    context.reserve(_answer_bytes(results, asked.binary_outputs()))
    content, length = await asyncio.to_thread(_encode, asked, results)
    if length is None:
        return Response(content, media_type="application/json")
    headers = {"Inference-Header-Content-Length": str(length)}
    return Response(content, media_type="application/octet-stream", headers=headers)


async def _parsed(context: RequestContext, body: bytes) -> tuple[InferRequest, list[bytes]]:
    """Parsed in a thread that takes a place: a large body may take a while."""
    header_length = context.headers.get("inference-header-content-length")
    max_images = context.app.settings.max_batch_images
    return (await context.run(lambda _: parse_request(body, header_length, max_images), counts=False))[0]


def _answer_bytes(results: Sequence[ImageResult], binary: Mapping[OutputName, bool]) -> int:
    """No less than the memory of the answer. Maps are padded to the largest: n x 8 and 8 x n give n x n."""
    counts = [result.count for result in results]
    total = 1024 * len(counts)
    if "count_map" in binary:
        total += _padded_cells(count.count_map.shape for count in counts) * _cell_bytes(binary["count_map"])
    if "classes" in binary:
        shapes = [class_maps(count).shape for count in counts]
        total += shapes[0][0] * _padded_cells(shape[1:] for shape in shapes) * _cell_bytes(binary["classes"])
    return total


def _cell_bytes(is_binary: bool) -> int:
    """Memory per cell while the answer is made: the array and its copy, or the array and its text (twice)."""
    return 12 if is_binary else 56


def _padded_cells(shapes: Iterable[tuple[int, ...]]) -> int:
    """Cells of maps [rows, columns] that are padded to the largest of them."""
    rows, columns = zip(*shapes, strict=True)
    return len(rows) * int(max(rows)) * int(max(columns))


def _encode(asked: InferRequest, results: Sequence[ImageResult]) -> tuple[bytes, int | None]:
    binary = asked.binary_outputs()
    tensors = _tensors(results, with_maps="count_map" in binary)
    if "classes" in binary or "class_cells" in binary:
        tensors |= _class_tensors(results)
    head = {"model_name": NAME, "model_version": results[0].model.artifact.version, "id": asked.id}
    return encode_response(head, {name: tensors[name] for name in binary}, binary)


def _tensors(results: Sequence[ImageResult], with_maps: bool) -> dict[OutputName, NDArray[Any]]:
    counts = [result.count for result in results]
    cells = np.array([count.count_map.shape for count in counts], "<i4")
    maps = np.zeros((len(counts), *cells.max(axis=0)) if with_maps else (0, 0, 0), "<f4")
    for target, count in zip(maps, counts, strict=with_maps):
        rows, columns = count.count_map.shape
        target[:rows, :columns] = count.count_map
    ranges = [(np.nan, np.nan) if count.range is None else (count.range.low, count.range.high) for count in counts]
    return {
        "count": np.array([count.count for count in counts], "<f4"),
        "range": np.array(ranges, "<f4"),
        "count_map": maps,
        "cells": cells,
    }


def _class_tensors(results: Sequence[ImageResult]) -> dict[OutputName, NDArray[Any]]:
    """Padded to the largest image as the count maps are; class 0 is the background."""
    found = [class_maps(result.count) for result in results]
    cells = np.array([maps.shape[1:] for maps in found], "<i4")
    classes = np.zeros((len(found), len(found[0]), *cells.max(axis=0)), "u1")
    for target, maps in zip(classes, found, strict=True):
        target[:, : maps.shape[1], : maps.shape[2]] = maps
    return {"classes": classes, "class_cells": cells}


def _check_ready(context: RequestContext) -> None:
    """A health check that fails is not counted as a rejected request."""
    context.app.admission.check_draining(counted=False)
    context.app.model.ready(counted=False)
