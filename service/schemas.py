"""The wire contract: what the service answers. Needs no server package, so the client reads it too.

Pixels are of the upright image, as it was sent. Counts are full floats: the same image gives the same number
here, in process and in evaluation.
"""

import base64
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from uepnet.model.count import Count, Range, ZoneCount


class WireModel(BaseModel):
    # Answers may gain fields: a client of today must read a server of tomorrow.
    model_config = ConfigDict(extra="ignore", frozen=True)


class RangeAnswer(WireModel):
    low: float
    high: float
    level: float = Field(description="the share of images whose true count lies within low and high")

    @classmethod
    def of(cls, bounds: Range | None) -> "RangeAnswer | None":
        return None if bounds is None else cls(low=bounds.low, high=bounds.high, level=bounds.level)


class ZoneAnswer(WireModel):
    name: str
    count: float
    range: RangeAnswer | None = Field(default=None, description="null where the model is not calibrated")
    square_metres: float | None = Field(
        default=None, description="the zone's area; null where the camera's ground is not known"
    )
    people_per_square_metre: float | None = Field(default=None, description="mean over the zone; null below 10 m²")

    @classmethod
    def of(cls, zone: ZoneCount) -> "ZoneAnswer":
        return cls(name=zone.name, count=zone.count, range=RangeAnswer.of(zone.range))


class ModelSummary(WireModel):
    name: str
    version: str
    precision: Literal["fp32", "fp16", "bf16", "int8"]
    device: str = Field(description="cpu, cuda:N, tensorrt:N or intel-gpu:N")


class Timings(WireModel):
    """Milliseconds. `queue` is waiting for the device; `total` runs from the first byte received."""

    decode: float
    queue: float
    inference: float
    total: float


class CountMap(WireModel):
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


class ScaleAnswer(WireModel):
    scale: float = Field(description="times the image's size")
    share: float = Field(ge=0, le=1, description="of the image's cells that were counted at it")


class CountAnswer(WireModel):
    count: float
    range: RangeAnswer | None = Field(description="null where the model is not calibrated")
    width: int
    height: int
    zones: list[ZoneAnswer]
    saturated: float = Field(ge=0, le=1, description="share of occupied cells in the model's densest class")
    scales: list[ScaleAnswer] = Field([], description="the scales at which the image was counted, the coarsest first")
    familiarity: float | None = Field(
        default=None, ge=0, le=1, description="1: like the training images, 0: strange; null where the model has none"
    )
    unfamiliar: bool = Field(default=False, description="the image does not look like the training images")
    warnings: list[str]
    model: ModelSummary
    timings_ms: Timings
    request_id: str
    map: CountMap | None = Field(default=None, description="only with ?include=map")

    @classmethod
    def of(
        cls, count: Count, model: ModelSummary, timings: Timings, request_id: str, with_map: bool = False
    ) -> "CountAnswer":
        return cls(
            count=count.count,
            range=RangeAnswer.of(count.range),
            width=count.width,
            height=count.height,
            zones=[ZoneAnswer.of(zone) for zone in count.zones],
            saturated=count.saturated,
            scales=[ScaleAnswer(scale=use.scale, share=use.share) for use in count.scales],
            familiarity=count.familiarity,
            unfamiliar=count.unfamiliar,
            warnings=list(count.warnings),
            model=model,
            timings_ms=timings,
            request_id=request_id,
            map=CountMap.of(count.count_map, count.cell) if with_map else None,
        )


class Problem(WireModel):
    """RFC 9457, sent as application/problem+json."""

    type: str = Field(description="urn:uepnet:problem:NAME; stable, for programs")
    title: str
    status: int
    detail: str = Field(description="one sentence, for people")
    request_id: str


class BatchEntry(WireModel):
    """Either `answer` or `problem`."""

    name: str = Field(description="the part's file name, or its number where it has none")
    answer: CountAnswer | None = None
    problem: Problem | None = None


class BatchAnswer(WireModel):
    results: list[BatchEntry] = Field(description="in the order of the parts")
    request_id: str


class Camera(WireModel):
    """One count of a camera: what is shown, kept and compared with limits."""

    camera: str
    count: float
    range: RangeAnswer | None
    zones: list[ZoneAnswer]
    width: int
    height: int
    warnings: list[str]
    time: float = Field(description="when the picture was taken, or arrived; seconds since 1970, UTC")
    model: ModelSummary
    request_id: str
    people_per_square_metre: float | None = Field(default=None, description="in the densest 10 m² that are seen")
    saturated: bool = Field(default=False, description="denser than the model can tell")
    unfamiliar: bool | None = Field(default=None, description="unlike the scenes the model was trained on")
    digest: str = Field(default="", description="the same for identical pictures")


class ModelAnswer(ModelSummary):
    """The model that serves."""

    engine: str = Field(default="onnxruntime", description="inference engine that runs: onnxruntime or openvino")
    engine_version: str = Field(default="", description="version of the engine")
    provider: str = Field(description="the engine's own name for what runs: an execution provider or a device")
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
