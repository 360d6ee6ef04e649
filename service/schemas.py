"""The wire contract: what the service answers. Needs no server package, so the client reads it too.

Pixels are of the upright image, as it was sent. Counts are full floats: the same image gives the same number
here, in process and in evaluation.
"""

import base64
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from uepnet.model.count import Count

CAMERA_PATTERN = r"^[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,62}[A-Za-z0-9])?$"
CAMERA_RULE = "1 to 64 letters, digits, blanks, dots, dashes and underscores, the first and the last a letter or digit"
CameraName = Annotated[str, StringConstraints(pattern=CAMERA_PATTERN)]


class Wire(BaseModel):
    # Answers may gain fields: a client of today must read a server of tomorrow.
    model_config = ConfigDict(extra="ignore", frozen=True)


class Range(Wire):
    low: float
    high: float
    level: float = Field(description="the share of images whose true count lies within low and high")


class ZoneCount(Wire):
    name: str
    count: float


class ModelSummary(Wire):
    name: str
    version: str
    precision: Literal["fp32", "fp16", "int8"]
    device: str = Field(description="cpu or cuda:N")


class Timings(Wire):
    """Milliseconds. `queue` is waiting for the device; `total` runs from the first byte received."""

    decode: float
    queue: float
    inference: float
    total: float


class CountMap(Wire):
    """People per cell, row by row from the top left corner."""

    rows: int
    columns: int
    cell: int = Field(description="side of a cell in pixels; the last row and column may be cut by the image's edge")
    values: str = Field(description="rows x columns little-endian float32, base64")

    @classmethod
    def of(cls, counts: NDArray[np.float32], cell: int) -> "CountMap":
        values = base64.b64encode(np.ascontiguousarray(counts, "<f4").tobytes()).decode("ascii")
        return cls(rows=counts.shape[0], columns=counts.shape[1], cell=cell, values=values)

    def array(self) -> NDArray[np.float32]:
        """[rows, columns]"""
        return np.frombuffer(base64.b64decode(self.values), "<f4").reshape(self.rows, self.columns)


class CountAnswer(Wire):
    count: float
    range: Range | None = Field(description="null where the model is not calibrated")
    width: int
    height: int
    zones: list[ZoneCount]
    saturated: float = Field(ge=0, le=1, description="share of occupied cells in the model's densest class")
    warnings: list[str]
    model: ModelSummary
    timings_ms: Timings
    request_id: str
    map: CountMap | None = Field(None, description="only with ?include=map")

    @classmethod
    def of(
        cls, count: Count, model: ModelSummary, timings: Timings, request_id: str, with_map: bool = False
    ) -> "CountAnswer":
        bounds = count.range
        return cls(
            count=count.count,
            range=None if bounds is None else Range(low=bounds.low, high=bounds.high, level=bounds.level),
            width=count.width,
            height=count.height,
            zones=[ZoneCount(name=zone.name, count=zone.count) for zone in count.zones],
            saturated=count.saturated,
            warnings=list(count.warnings),
            model=model,
            timings_ms=timings,
            request_id=request_id,
            map=CountMap.of(count.count_map, count.cell) if with_map else None,
        )


class Problem(Wire):
    """RFC 9457, sent as application/problem+json."""

    type: str = Field(description="urn:uepnet:problem:NAME; stable, for programs")
    title: str
    status: int
    detail: str = Field(description="one sentence, for people")
    request_id: str


class BatchEntry(Wire):
    """Either `answer` or `problem`."""

    name: str = Field(description="the part's file name, or its number where it has none")
    answer: CountAnswer | None = None
    problem: Problem | None = None


class BatchAnswer(Wire):
    results: list[BatchEntry] = Field(description="in the order of the parts")
    request_id: str


class Camera(Wire):
    """The latest count of a camera; also the data of each event of /v1/events."""

    camera: str
    count: float
    range: Range | None
    zones: list[ZoneCount]
    width: int
    height: int
    warnings: list[str]
    time: float = Field(description="seconds since 1970, UTC")
    model: ModelSummary
    request_id: str


class CamerasAnswer(Wire):
    cameras: list[Camera]


class ModelAnswer(ModelSummary):
    """The model that serves."""

    provider: str = Field(description="ONNX Runtime's execution provider that really runs")
    fallback: str | None = Field(description="why the CPU runs where another device was asked for, else null")
    batch_sizes: list[int]
    loaded_at: float = Field(description="seconds since 1970, UTC")
    metrics: dict[str, float] = Field(description="measured by evaluation, from the artifact")
    artifact: dict[str, Any] = Field(description="the whole artifact.json")


class ReloadRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str | None = Field(
        None,
        max_length=4096,
        description="a model directory: the configured one (the default), or one below models_dir",
    )
