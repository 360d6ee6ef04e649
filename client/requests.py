"""What is asked of the service and how its answers are read: the client without the sending.

Each function returns a `Call`: a request, and the function that reads its answer. `Client` and `AsyncClient`
differ only in how they send one.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ValidationError

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
from uepnet.model.image import load_image
from uepnet.model.zones import Zone
from uepnet.service.schemas import BatchAnswer, CountAnswer, ModelAnswer, Problem

Source = str | Path | bytes | NDArray[np.uint8]  # a file, its bytes, or RGB [height, width, 3]
Part = tuple[str, tuple[str, bytes, str]]  # of a form: its name, then file name, content and media type
T = TypeVar("T")
Answer = TypeVar("Answer", bound=BaseModel)

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
    image: Source, zones: Sequence[Zone] = (), camera: str | None = None, with_map: bool = False
) -> Call[CountAnswer]:
    params = ({"camera": camera} if camera else {}) | ({"include": "map"} if with_map else {})
    return _count(image, zones, params, "application/json", lambda answer: _parsed(CountAnswer, answer))


def picture(image: Source, zones: Sequence[Zone], view: str) -> Call[NDArray[np.uint8]]:
    """The overlay or the bare heat map, RGB [height, width, 3]."""
    return _count(image, zones, {"view": view}, "image/png", lambda answer: load_image(answer.content))


def people(image: Source, kind: str) -> Call[NDArray[np.float32]]:
    """The count map [rows, columns] or the density map [height, width]."""
    return _count(image, (), {"map": kind}, "application/x-npy", _array)


def batch(images: Sequence[Source], zones: Sequence[Zone] = ()) -> Call[list[CountAnswer | UepnetError]]:
    def read(answer: httpx.Response) -> list[CountAnswer | UepnetError]:
        entries = _parsed(BatchAnswer, answer).results
        if len(entries) != len(images):
            raise InferenceError(f"The server answered {len(entries)} counts to {len(images)} images.")
        return [entry.answer or _from_problem(entry.problem) for entry in entries]

    parts = [("image", (str(index), *encoded(image))) for index, image in enumerate(images)]
    return Call("POST", "v1/count/batch", read, files=parts + _zone_parts(zones))


def model() -> Call[ModelAnswer]:
    return Call("GET", "v1/model", lambda answer: _parsed(ModelAnswer, answer))


def encoded(image: Source) -> tuple[bytes, str]:
    """(bytes, media type). Arrays travel losslessly: the server sees the very same pixels."""
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
            raise ImageError(f"An image array must be uint8 [height, width, 3], not {image.dtype} {list(image.shape)}.")
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG", compress_level=1)
        return file.getvalue(), "image/png"
    # Which format it is, the server finds out from the bytes themselves.
    return image if isinstance(image, bytes) else _file(Path(image)), "image/*"


def failure(answer: httpx.Response) -> UepnetError:
    """What an answer of 400 or above means, in the words of the service where it has some."""
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


def _count(
    image: Source,
    zones: Sequence[Zone],
    params: Mapping[str, str],
    accept: str,
    read: Callable[[httpx.Response], T],
) -> Call[T]:
    """A raw body where there are no zones (the fast path), multipart where there are."""
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


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror or 'it is no file'}.") from None


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
