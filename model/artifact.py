"""The JSON artifact: a frozen, validated record of all that inference needs besides the weights.

A model directory holds `artifact.json` and one ONNX file a precision. The artifact knows the sha256 of each
file; each file's metadata knows the hash of the artifact's inference fields. Neither depends on the other's
final bytes, and a mix of two models is found on loading.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from uepnet.model.errors import ArtifactError

FORMAT = 1
FILE = "artifact.json"
MULTIPLE = 32  # of pixels, sides of a tile: the encoders' deepest stride

Precision = Literal["fp32", "fp16", "int8"]
Decoding = Literal["argmax", "expectation", "regression"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Layout(Record):
    """The network's shape: what `model.network.build` takes."""

    encoder: Literal["vgg16", "efficientnet-lite0"]
    width: int = Field(gt=0, le=4096, description="channels of the decoder")
    classes: tuple[int, ...] = Field(description="classes of each head; (1,) for a regression network")
    cell: Literal[8, 16, 32] = 8


class Normalisation(Record):
    """x -> (x - mean) / std for RGB values 0 ... 255; done inside the exported graph."""

    mean: tuple[Finite, Finite, Finite]
    std: tuple[Finite, Finite, Finite]

    @property
    def padding(self) -> tuple[int, int, int]:
        """The mean colour: what lies outside the image."""
        red, green, blue = (min(255, max(0, round(value))) for value in self.mean)
        return red, green, blue

    @model_validator(mode="after")
    def check(self) -> Self:
        if min(self.std) <= 0:
            raise ValueError("std must be positive")
        return self


class Head(Record):
    """One head's count intervals: len(borders) + 1 classes, a proxy count for each."""

    borders: tuple[Finite, ...] = Field(min_length=1, max_length=254)
    proxies: tuple[Finite, ...] = Field(min_length=2, max_length=255)

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.borders[0] <= 0:
            raise ValueError("borders must be positive")
        if any(left >= right for left, right in zip(self.borders, self.borders[1:], strict=False)):
            raise ValueError("borders must rise strictly")
        if len(self.proxies) != len(self.borders) + 1:
            raise ValueError(
                f"proxies must number one more than the borders: {len(self.borders) + 1}, not {len(self.proxies)}"
            )
        if self.proxies[0] != 0:
            raise ValueError("proxies must start with 0, the background's count")
        uppers = (*self.borders[1:], math.inf)
        for index, (low, proxy, high) in enumerate(zip(self.borders, self.proxies[1:], uppers, strict=True), 1):
            if not low <= proxy <= high:
                raise ValueError(f"proxies[{index}] = {proxy:g} lies outside its interval [{low:g}, {high:g})")
        return self

    def densest_class(self, t_max: float) -> int:
        """The class from which on a cell is as dense as the model knows: the top one, or the one below it.

        Intervals of uniform error grow with the count. A top one shorter than its neighbour is what was left of the
        data: hardly any cell fell into it, and the network never answers with it.
        """
        top = len(self.borders)
        left_over = top > 1 and t_max - self.borders[-1] < self.borders[-1] - self.borders[-2]
        return top - 1 if left_over else top


class Tiling(Record):
    tile: int = Field(
        default=1024, ge=64, le=8192, multiple_of=MULTIPLE, description="the largest window's side in pixels"
    )
    halo: int = Field(default=64, ge=0, le=1024, multiple_of=8, description="context around owned cells, in pixels")

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.tile - 2 * self.halo < MULTIPLE:
            raise ValueError(f"halo {self.halo} leaves nothing of a tile of {self.tile}")
        return self


class Expectation(Record):
    """How the graph turns probabilities into `counts`: sum of p * proxy, after these two corrections."""

    temperature: Finite = Field(default=1.0, gt=0, description="logits are divided by it")
    floor: Finite = Field(
        0.0, ge=0, le=1, description="a cell counts nothing where the background's probability exceeds 1 - floor"
    )


class Calibration(Record):
    """A conformal range: count + [low, high] * (count + offset) ** power holds the truth at `level`."""

    level: Finite = Field(gt=0, lt=1)
    low: Finite
    high: Finite
    offset: Finite = Field(gt=0)
    power: Finite = Field(ge=0, le=1)
    images: int = Field(gt=0, description="how many held-back images it was fitted on")

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.low > self.high:
            raise ValueError("low must not exceed high")
        return self

    def range(self, count: float) -> tuple[float, float]:
        """The bounds around a count; the count itself always lies inside, and no bound is below zero."""
        scale = (count + self.offset) ** self.power
        return max(0.0, count + min(0.0, self.low) * scale), count + max(0.0, self.high) * scale


class Parity(Record):
    """What the export measured against torch, on `tiles` tiles."""

    tiles: int
    class_agreement: Finite
    count_difference: Finite = Field(description="mean of |count - torch's count| / torch's count")
    worst_tile: Finite
    speed: Finite = Field(description="times as fast as the fp32 file on the exporting CPU")


class ModelFile(Record):
    file: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
    sha256: Sha256
    parity: Parity | None = None


class Artifact(Record):
    format: int = FORMAT
    name: Name = "uepnet"
    version: Name
    layout: Layout
    normalisation: Normalisation
    heads: tuple[Head, ...] = Field(max_length=2)
    t_max: Finite = Field(gt=0, description="the largest local count of the training data")
    tiling: Tiling = Tiling(tile=1024, halo=64)
    decoding: Decoding = "argmax"
    expectation: Expectation = Expectation(temperature=1.0, floor=0.0)
    scale: Finite = Field(default=1.0, gt=0, le=4, description="images are resized by it before counting")
    mirror: bool = Field(default=False, description="average with the mirrored image")
    calibration: Calibration | None = None
    files: dict[Precision, ModelFile] = {}
    training: dict[str, Any] = Field(default={}, description="the data and settings it came from")
    metrics: dict[str, Finite] = {}

    @property
    def cell(self) -> int:
        return self.layout.cell

    @property
    def multiple(self) -> int:
        """Sides of a tile are multiples of it."""
        return MULTIPLE

    @model_validator(mode="after")
    def check(self) -> Self:
        halo = -(-self.tiling.halo // self.cell) * self.cell
        if self.tiling.tile - 2 * halo < self.multiple:
            raise ValueError(
                f"tiling: halo {self.tiling.halo}, in whole cells of {self.cell}, leaves nothing of a tile"
            )
        if self.decoding == "regression":
            if self.heads or self.layout.classes != (1,):
                raise ValueError("heads must be empty and layout.classes (1,) for regression")
            return self
        if not self.heads:
            raise ValueError("heads must not be empty")
        classes = tuple(len(head.proxies) for head in self.heads)
        if classes != self.layout.classes:
            raise ValueError(f"heads have {classes} classes where layout.classes says {self.layout.classes}")
        top = max(head.borders[-1] for head in self.heads)
        if self.t_max < top:
            raise ValueError(f"t_max {self.t_max:g} lies below the last border {top:g}")
        return self

    @property
    def inference_hash(self) -> str:
        """A hash of the fields that an exported graph depends on; stands in each ONNX file's metadata."""
        fields = {"heads", "normalisation", "layout", "decoding", "expectation"}
        text = json.dumps(self.model_dump(mode="json", include=fields), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"

    def save(self, directory: Path) -> Path:
        """Write `artifact.json` into the directory; a reader sees the old file or the new one, never half."""
        path = directory / FILE
        partial = path.with_suffix(".json.partial")
        partial.write_text(self.to_json())
        partial.replace(path)
        return path

    @classmethod
    def load(cls, directory: Path) -> Self:
        path = directory / FILE
        try:
            text = path.read_text()
        except FileNotFoundError:
            raise ArtifactError(f"{directory} is no model directory: it has no {FILE}.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{path} cannot be read: {error}.") from None
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: str, source: str = FILE) -> Self:
        try:
            fields = json.loads(text)
        except json.JSONDecodeError as error:
            raise ArtifactError(f"{source} is not complete JSON (line {error.lineno}: {error.msg}).") from None
        if not isinstance(fields, dict):
            raise ArtifactError(f"{source} must hold one JSON object.")
        found = fields.get("format")
        if found != FORMAT or found is True:  # True equals 1
            newer = isinstance(found, int) and found > FORMAT
            hint = "upgrade uepnet to read it" if newer else f"this uepnet reads format {FORMAT}"
            raise ArtifactError(f"{source}: format is {found!r}; {hint}.")
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise ArtifactError(f"{source}: {_first(error)}.") from None


def _first(error: ValidationError) -> str:
    """The first complaint as `field: what is wrong`."""
    complaint = error.errors()[0]
    field = ".".join(str(part) for part in complaint["loc"])
    text = complaint["msg"].removeprefix("Value error, ")
    return f"{field}: {text}" if field else text
