"""The Open Inference Protocol, which clients of KServe and Triton speak.

One model, `uepnet`: a BYTES tensor `images` of encoded images in; `count` [n], `range` [n, 2] (NaN, in JSON null,
where the model is not calibrated), `count_map` [n, rows, columns] padded with zeros to the largest image, and
`cells` [n, 2] (the rows and columns that are the image's own) out.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from numpy.typing import NDArray
from starlette.responses import JSONResponse, Response

from uepnet import __version__
from uepnet.service.counting import Counted, Many
from uepnet.service.openapi import inline, problems
from uepnet.service.problems import Refused
from uepnet.service.serving import Serving
from uepnet.service.tensors import INPUT, InferRequest, OutputName, encode_response, parse_request

NAME = "uepnet"
OUTPUTS: dict[OutputName, tuple[str, list[int]]] = {
    "count": ("FP32", [-1]),
    "range": ("FP32", [-1, 2]),
    "count_map": ("FP32", [-1, -1, -1]),
    "cells": ("INT32", [-1, 2]),
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
async def live(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    if not serving.is_alive:
        raise Refused("not-ready", "The device has failed.")
    return JSONResponse({"live": True})


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready", summary="Ready: requests are taken", responses=problems(503))
async def ready(request: Request) -> Response:
    _check_ready(request)
    return JSONResponse({"ready": True})


@router.get(f"/models/{NAME}/ready", summary="The model is ready", responses=problems(503))
async def model_ready(request: Request) -> Response:
    _check_ready(request)
    return JSONResponse({"name": NAME, "ready": True})


@router.get(f"/models/{NAME}", summary="Inputs and outputs of the model", responses=problems(503))
async def model_metadata(request: Request) -> dict[str, Any]:
    serving: Serving = request.app.state.serving
    return {
        "name": NAME,
        "versions": [serving.ready_engine().artifact.version],
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
async def infer(request: Request) -> Response:
    serving: Serving = request.app.state.serving
    serving.check_open()
    header_length = request.headers.get("inference-header-content-length")
    async with serving.house.body(request) as body:
        asked, images = await asyncio.to_thread(parse_request, body, header_length)
        del body
        if len(images) > serving.settings.max_batch_images:
            raise Refused("wrong-request", f"At most {serving.settings.max_batch_images} images are allowed.")
        many = Many(serving, images)
        await serving.run(request, many.work, most=len(images))
    counted = []
    for result in many.results:
        if not isinstance(result, Counted):
            raise result
        counted.append(result)
    request.state.log = {"images": len(images)}
    content, length = await asyncio.to_thread(_encode, asked, counted)
    if length is None:
        return Response(content, media_type="application/json")
    headers = {"Inference-Header-Content-Length": str(length)}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _encode(asked: InferRequest, counted: Sequence[Counted]) -> tuple[bytes, int | None]:
    tensors = _tensors(counted)
    binary = asked.binary_outputs()
    head = {"model_name": NAME, "model_version": counted[0].engine.artifact.version, "id": asked.id}
    return encode_response(head, {name: tensors[name] for name in binary}, binary)


def _tensors(counted: Sequence[Counted]) -> dict[OutputName, NDArray[Any]]:
    counts = [result.count for result in counted]
    cells = np.array([count.count_map.shape for count in counts], "<i4")
    maps = np.zeros((len(counts), *cells.max(axis=0)), "<f4")
    for target, count in zip(maps, counts, strict=True):
        rows, columns = count.count_map.shape
        target[:rows, :columns] = count.count_map
    ranges = [(np.nan, np.nan) if count.range is None else (count.range.low, count.range.high) for count in counts]
    return {
        "count": np.array([count.count for count in counts], "<f4"),
        "range": np.array(ranges, "<f4"),
        "count_map": maps,
        "cells": cells,
    }


def _check_ready(request: Request) -> None:
    """A probe is no request that was turned away, and is not counted as one."""
    serving: Serving = request.app.state.serving
    serving.house.check_draining(counted=False)
    serving.ready_engine(counted=False)
