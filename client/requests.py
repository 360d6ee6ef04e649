"""The requests of the client and how answers are read; sending them is done elsewhere.

Each function returns a `Call`: a request, and the function that reads its answer. `Client` and `AsyncClient`
differ only in how they send one.
"""

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from uepnet.model.artifact import Decoding
from uepnet.model.counted_image import check_several, check_single
from uepnet.model.errors import (
    DeadlineExceeded,
    ImageError,
    ImageTooLarge,
    InferenceError,
    InputError,
    Overloaded,
    UepnetError,
    ZoneError,
)
from uepnet.model.image import ImageSource, encode_png, image_reader, load_image, read_file, read_open
from uepnet.model.zones import Zone, zone_list
from uepnet.service.schemas import BatchAnswer, CountAnswer, ModelAnswer, Problem

Source = ImageSource  # a path, bytes, an open file, a PIL image, or an array RGB [height, width, 3]
Part = tuple[str, tuple[str, bytes, str]]  # of a form: its name, then file name, content and media type
T = TypeVar("T")
Answer = TypeVar("Answer", bound=BaseModel)
Results = list[CountAnswer | UepnetError]

# What the name at the end of a problem's type means; any other is an InferenceError.
ERRORS: dict[str, type[UepnetError]] = {
    "image-too-large": ImageTooLarge,
    "body-too-large": ImageTooLarge,
    "wrong-image": ImageError,
    "unsupported-media-type": ImageError,
    "wrong-zones": ZoneError,
    "wrong-request": InputError,
    "unauthorised": InputError,
    "full": Overloaded,
    "too-many-cameras": Overloaded,
    "not-ready": Overloaded,
    "draining": Overloaded,
    "deadline": DeadlineExceeded,
}
KEY_NEEDED = "The server wants a valid API key: set UEPNET_API_KEY, or pass api_key to the client."


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    method: str
    path: str
    read: Callable[[httpx.Response], T]
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    files: Sequence[Part] | None = None

    def request(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        return http.build_request(
            self.method,
            self.path,
            params=dict(self.params) or None,
            headers=dict(self.headers),
            content=self.content,
            files=self.files,
        )


def count(
    image: Source,
    zones: Sequence[Zone] = (),
    camera: str | None = None,
    with_map: bool = False,
    decoding: Decoding | None = None,
) -> Call[CountAnswer]:
    params = _given(camera=camera or None, include="map" if with_map else None, decoding=decoding)
    return _count(image, zones, params, "application/json", lambda answer: _parsed(CountAnswer, answer))


def picture(
    image: Source, zones: Sequence[Zone], view: str, decoding: Decoding | None = None
) -> Call[NDArray[np.uint8]]:
    """The overlay or the bare heat map, RGB [height, width, 3]."""
    params = _given(view=view, decoding=decoding)
    return _count(image, zones, params, "image/png", lambda answer: load_image(answer.content))


def people(image: Source, kind: str, decoding: Decoding | None = None) -> Call[NDArray[np.float32]]:
    """The count map [rows, columns] or the density map [height, width]."""
    return _count(image, (), _given(map=kind, decoding=decoding), "application/x-npy", _array)


def batch(
    images: Sequence[Source], zones: Sequence[Zone] = (), decoding: Decoding | None = None
) -> "Call[Results] | Results":
    """One request for many images. One that cannot be read is not sent; its error stands in its place."""
    check_several(images, "count_batch")
    images, zones = list(images), zone_list(zones)
    parts: list[Part] = []
    errors: dict[int, UepnetError] = {}
    for index, image in enumerate(images):
        try:
            parts.append(("image", (str(index), *encoded(image))))
        except UepnetError as error:
            errors[index] = error
    if not parts:
        return [errors[index] for index in range(len(images))]

    def read(answer: httpx.Response) -> Results:
        entries = _parsed(BatchAnswer, answer).results
        if len(entries) != len(parts):
            raise InferenceError(f"The server answered {len(entries)} counts to {len(parts)} images.")
        counted = iter([entry.answer or _from_problem(entry.problem) for entry in entries])
        return [errors[index] if index in errors else next(counted) for index in range(len(images))]

    return Call("POST", "v1/count/batch", read, _given(decoding=decoding), files=parts + _zone_parts(zones))


def model() -> Call[ModelAnswer]:
    return Call("GET", "v1/model", lambda answer: _parsed(ModelAnswer, answer))


def encoded(image: Source) -> tuple[bytes, str]:
    """(bytes, media type). Pixels travel without loss: the server sees the same ones."""
    check_single(image)
    if isinstance(image, str | os.PathLike):
        # The server finds out the format from the bytes.
        return read_file(Path(image)), "image/*"
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image), "image/*"
    if hasattr(image, "read"):
        return read_open(image), "image/*"
    return encode_png(image_reader(image)[0]()), "image/png"


def failure(answer: httpx.Response) -> UepnetError:
    """The error for a status of 400 or above, with the text of the service if there is one."""
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        url = answer.request.url.copy_with(path="/", query=None)
        return InferenceError(f"{url} answered {answer.status_code}, and not as the service does.")
    return _from_problem(problem)


def _from_problem(problem: Problem | None) -> UepnetError:
    if problem is None:
        return InferenceError("The server answered neither a count nor a reason.")
    name = problem.type.rpartition(":")[2]
    return ERRORS.get(name, InferenceError)(KEY_NEEDED if name == "unauthorised" else problem.detail)


def _given(**params: str | None) -> dict[str, str]:
    return {name: value for name, value in params.items() if value is not None}


def _count(
    image: Source,
    zones: Sequence[Zone],
    params: Mapping[str, str],
    accept: str,
    read: Callable[[httpx.Response], T],
) -> Call[T]:
    """A raw body where there are no zones (the fast path), multipart where there are."""
    zones = zone_list(zones)
    content, media_type = encoded(image)
    headers = {"Accept": accept}
    if not zones:
        headers["Content-Type"] = media_type
        return Call("POST", "v1/count", read, params, headers, content)
    parts = [("image", ("image", content, media_type)), *_zone_parts(zones)]
    return Call("POST", "v1/count", read, params, headers, files=parts)


def _zone_parts(zones: Sequence[Zone]) -> list[Part]:
    if not zones:
        return []
    text = json.dumps({"zones": [zone.model_dump(mode="json") for zone in zones]})
    return [("zones", ("zones.json", text.encode(), "application/json"))]


def _parsed(kind: type[Answer], answer: httpx.Response) -> Answer:
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError:
        raise InferenceError(f"{answer.request.url} answered something other than a {kind.__name__}.") from None


def _array(answer: httpx.Response) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(io.BytesIO(answer.content), allow_pickle=False)
    except ValueError:
        raise InferenceError(f"{answer.request.url} answered something other than an array.") from None
    return array
