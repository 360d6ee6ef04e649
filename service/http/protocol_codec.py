"""The bodies of the Open Inference Protocol: JSON, with tensors inside it or raw behind it (binary extension)."""

import base64
import binascii
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from uepnet.model.validation import first_complaint
from uepnet.service.errors import Refused

INPUT = "images"
OutputName = Literal["count", "range", "count_map", "cells", "classes", "class_cells"]
# The outputs of a request that names none.
DEFAULT_OUTPUTS: tuple[OutputName, ...] = ("count", "range", "count_map", "cells")
Base64 = Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]
PIECE = 16_384
DATATYPES = {np.dtype("<f4"): "FP32", np.dtype("<i4"): "INT32", np.dtype("u1"): "UINT8"}


Parameters = Annotated[
    dict[Annotated[str, Field(max_length=64)], bool | int | float | Annotated[str, Field(max_length=256)]],
    Field(max_length=16),
]
# All that may stand in the JSON of a request: a list of a thousand images and a few fields. Base64 holds none of these
# characters. Parsing keeps Python's lock, so what would take long is refused before.
MAX_STRUCTURE = 8192
STRUCTURE = (b"[", b"{", b",")


class InputTensor(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: Literal["images"]
    parameters: Parameters = {}
    shape: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1, max_length=2)]
    datatype: Literal["BYTES"]
    data: list[Base64] | None = Field(None, description="each image; absent where they follow the JSON")


class OutputTensor(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: OutputName
    parameters: Parameters = {}


class RequestParameters(BaseModel):
    model_config = ConfigDict(extra="ignore")

    binary_data_output: bool = False
    decoding: Literal["argmax", "expectation"] | None = Field(default=None, description="argmax has no range")


class InferRequest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: Annotated[str, Field(max_length=256)] = ""
    parameters: RequestParameters = RequestParameters()
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=1)]
    outputs: Annotated[list[OutputTensor], Field(max_length=16)] = []

    def binary_outputs(self) -> dict[OutputName, bool]:
        """The outputs asked for (all where none is named), and whether each is to follow the JSON raw."""
        default = bool(self.parameters.binary_data_output)
        if not self.outputs:
            return dict.fromkeys(DEFAULT_OUTPUTS, default)
        return {output.name: bool(output.parameters.get("binary_data", default)) for output in self.outputs}


def parse_request(body: bytes, header_length: str | None, max_images: int) -> tuple[InferRequest, list[bytes]]:
    """The request and its images. `header_length` is the header Inference-Header-Content-Length."""
    length = len(body)
    if header_length is not None:
        if not header_length.isdecimal() or len(header_length) > 18 or int(header_length) > len(body):
            raise Refused("wrong-request", "Inference-Header-Content-Length does not fit the body.")
        length = int(header_length)
    if sum(body.count(mark, 0, length) for mark in STRUCTURE) > MAX_STRUCTURE:
        raise Refused("wrong-request", f"The JSON has more than {MAX_STRUCTURE} items.")
    try:
        request = InferRequest.model_validate_json(body[:length])
    except ValidationError as error:
        field, text = first_complaint(error)
        raise Refused("wrong-request", f"{field or 'body'}: {text}.") from None
    tensor = request.inputs[0]
    number = math.prod(tensor.shape)
    if number > max_images:
        raise Refused("wrong-request", f"At most {max_images} images are allowed.")
    images = _decode(tensor.data) if tensor.data is not None else _split(memoryview(body)[length:], number)
    if len(images) != number:
        raise Refused("wrong-request", f"The shape of {INPUT} does not fit its {len(images)} items.")
    return request, images


def _decode(texts: Sequence[str]) -> list[bytes]:
    try:
        return [base64.b64decode(text, validate=True) for text in texts]
    except (binascii.Error, ValueError):
        raise Refused("wrong-request", f"Items of {INPUT} in JSON must be base64.") from None


def _split(raw: memoryview, number: int) -> list[bytes]:
    """A raw BYTES tensor of so many items: each behind its length as four little-endian bytes."""
    items: list[bytes] = []
    at = 0
    while at + 4 <= len(raw) and len(items) < number:
        (size,) = struct.unpack_from("<I", raw, at)
        items.append(bytes(raw[at + 4 : at + 4 + size]))
        at += 4 + size
    if at != len(raw):
        raise Refused("wrong-request", f"The raw items of {INPUT} do not fit the body.")
    return items


def encode_response(
    head: Mapping[str, Any], outputs: Mapping[OutputName, NDArray[Any]], binary: Mapping[OutputName, bool]
) -> tuple[bytes, int | None]:
    """The body, and the length of its JSON where raw tensors follow it."""
    described, tail = [], []
    for name, array in outputs.items():
        tensor = {"name": name, "datatype": DATATYPES[array.dtype], "shape": list(array.shape)}
        if binary[name]:
            tail.append(np.ascontiguousarray(array).tobytes())
            described.append(json.dumps({**tensor, "parameters": {"binary_data_size": array.nbytes}}))
        else:
            described.append(_with(tensor, "data", _numbers(array)))
    text = _with(head, "outputs", f"[{', '.join(described)}]").encode()
    return b"".join((text, *tail)), len(text) if tail else None


def _with(fields: Mapping[str, Any], name: str, value: str) -> str:
    """An object's JSON with one more field, whose value is JSON already."""
    return f'{json.dumps(fields)[:-1]}, "{name}": {value}}}'


def _numbers(array: NDArray[Any]) -> str:
    """A JSON list, made in pieces: one of millions would keep Python's lock, and all other threads, for seconds."""
    flat = array.ravel()
    pieces = (json.dumps(flat[at : at + PIECE].tolist())[1:-1] for at in range(0, flat.size, PIECE))
    return f"[{', '.join(pieces)}]".replace("NaN", "null")  # JSON knows no NaN
