"""The JSON artifact: a frozen, validated record of everything that inference needs besides the weights.

A model directory holds `artifact.json` and one ONNX file per precision. The artifact stores the sha256 of each
file; each file's metadata stores the hash of the artifact's inference fields. Neither hash depends on the other's
final bytes, and files of two models in one directory are detected on loading.
"""

import hashlib
import json
import math
import os.path
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from uepnet.model.errors import ArtifactError, InputError
from uepnet.model.validation import first_complaint

FORMAT = 2
READABLE = (1, 2)  # format 1 has no layout.decoder: it is "full" there
FILE = "artifact.json"
MULTIPLE = 32  # sides of a tile are multiples of it, in pixels: the deepest stride of the encoders

Precision = Literal["fp32", "fp16", "bf16", "int8"]
EngineName = Literal["onnxruntime", "openvino"]
Encoder = Literal["vgg16", "efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"]
Decoding = Literal["argmax", "expectation", "regression"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Layout(Record):
    """The network's shape: what `model.network.build` takes."""

    encoder: Encoder
    decoder: Literal["full", "lean"] = Field(default="full", description="lean: a quarter of the cost of full")
    width: int = Field(gt=0, le=4096, description="channels of the decoder")
    classes: tuple[int, ...] = Field(description="classes of each head; (1,) for a regression network")
    cell: Literal[8, 16, 32] = 8


class Normalisation(Record):
    """x -> (x - mean) / std for RGB values 0 ... 255; done inside the exported graph."""

    mean: tuple[Finite, Finite, Finite]
    std: tuple[Finite, Finite, Finite]

    @property
    def padding(self) -> tuple[int, int, int]:
        """The colour outside the image: the mean, rounded."""
        red, green, blue = (min(255, max(0, round(value))) for value in self.mean)
        return red, green, blue

    @model_validator(mode="after")
    def check(self) -> Self:
        if min(self.std) <= 0:
            raise ValueError("std must be positive")
        return self


class Head(Record):
    """The count intervals of one head: len(borders) + 1 classes, each with a proxy count."""

    borders: tuple[Finite, ...] = Field(min_length=1, max_length=254)
    proxies: tuple[Finite, ...] = Field(min_length=2, max_length=255)

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.borders[0] <= 0:
            raise ValueError("borders must be positive")
        if any(left >= right for left, right in zip(self.borders, self.borders[1:], strict=False)):
            raise ValueError("borders must increase strictly")
        if len(self.proxies) != len(self.borders) + 1:
            raise ValueError(
                f"there must be one proxy more than borders: {len(self.borders) + 1}, not {len(self.proxies)}"
            )
        if self.proxies[0] != 0:
            raise ValueError("the first proxy must be 0, the count of the background")
        uppers = (*self.borders[1:], math.inf)
        for index, (low, proxy, high) in enumerate(zip(self.borders, self.proxies[1:], uppers, strict=True), 1):
            if not low <= proxy <= high:
                raise ValueError(f"proxies[{index}] = {proxy:g} lies outside its interval [{low:g}, {high:g})")
        return self

    def densest_class(self, t_max: float) -> int:
        """The lowest class that means "as dense as the training data gets": the top class, or the one below it.

        Intervals of uniform error grow with the count. A top interval that is shorter than its neighbour holds the
        few cells that were left over; the network never predicts it, so the class below it counts as the densest.
        """
        top = len(self.borders)
        left_over = top > 1 and t_max - self.borders[-1] < self.borders[-1] - self.borders[-2]
        return top - 1 if left_over else top


class Tiling(Record):
    tile: int = Field(
        default=1024, ge=64, le=8192, multiple_of=MULTIPLE, description="side of the largest tile, in pixels"
    )
    halo: int = Field(
        default=64, ge=0, le=1024, multiple_of=8, description="context around the cells that a tile owns, in pixels"
    )

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.tile - 2 * self.halo < MULTIPLE:
            raise ValueError(f"a halo of {self.halo} leaves no cells of a tile of {self.tile}")
        return self


class Expectation(Record):
    """How the graph turns probabilities into `counts`: sum of p * proxy, after these two corrections."""

    temperature: Finite = Field(default=1.0, gt=0, description="logits are divided by this number")
    floor: Finite = Field(
        0.0, ge=0, le=1, description="a cell counts 0 where the probability of the background exceeds 1 - floor"
    )


class Scales(Record):
    """How the scale is chosen from the image, in passes from coarse to fine (docs/scale.md). Scales are factors on
    the size of the image; sizes of blocks and halos are pixels at the scale of a pass."""

    first_side: Finite = Field(
        gt=0, le=8192, description="the first pass resizes the whole image to the area of a square with this side"
    )
    step: Finite = Field(default=2.0, ge=1.2, le=4, description="scale of a pass over the scale of the pass before")
    finest: Finite = Field(
        default=2.0, gt=0, le=4, description="largest scale of a pass, on the size at which the image keeps its detail"
    )
    smallest_step: Finite = Field(default=1.15, gt=1, le=4, description="the last pass is left out below this step")
    block: int = Field(default=64, ge=8, le=1024, description="side of a block, in pixels")
    halo: int = Field(default=96, ge=0, le=1024, multiple_of=8, description="context around blocks, in pixels")
    crowded: Finite = Field(gt=0, description="a block with more people per cell is counted again at the next scale")
    beside: Finite = Field(gt=0, description="the same for a block next to a crowded one")
    doubt: Finite = Field(default=1.0, gt=0, description="a block with a larger relative variance is counted again")
    least_people: Finite = Field(default=0.0, ge=0, description="a block with fewer people is not counted again")
    empty_until: Finite = Field(
        default=0.25, ge=0, le=4, description="blocks with nobody are counted again at scales up to this one"
    )
    nobody: Finite = Field(default=0.5, ge=0, description="fewer people than this are nobody")


class Familiarity(Record):
    """How it is decided that an image does not look like the training images."""

    threshold: Finite = Field(ge=0, le=1, description="an image whose mean familiarity lies below it is unfamiliar")
    hidden: int = Field(default=64, gt=0, le=4096, description="channels of the head's inner layer")
    images: int = Field(gt=0, description="number of training images that the threshold was fitted on")


class Calibration(Record):
    """A conformal range: count + [low, high] * scale contains the true count at `level`.

    The scale is (count + offset) ** power * doubt ** trust, with the image's doubt (`model.count`) cut to `doubts`.
    """

    level: Finite = Field(gt=0, lt=1)
    low: Finite
    high: Finite
    offset: Finite = Field(gt=0)
    power: Finite = Field(ge=0, le=1)
    trust: Finite = Field(default=0.0, ge=0, le=2, description="how much doubt widens a range; 0: not at all")
    doubts: tuple[Finite, Finite] = Field(default=(1.0, 1.0), description="smallest and largest doubt of the images")
    images: int = Field(gt=0, description="number of images that the range was fitted on")

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.low > self.high:
            raise ValueError("low must not exceed high")
        if not 0 < self.doubts[0] <= self.doubts[1]:
            raise ValueError("doubts must be positive, the smaller one first")
        return self

    def range(self, count: float, doubt: float | None = None) -> tuple[float, float]:
        """(low, high) around a count: always containing the count itself, never below zero.

        An image without a doubt counts as one of the largest.
        """
        least, most = self.doubts
        scale = (count + self.offset) ** self.power
        scale *= (most if doubt is None else min(max(doubt, least), most)) ** self.trust
        return max(0.0, count + min(0.0, self.low) * scale), count + max(0.0, self.high) * scale


class Parity(Record):
    """What was measured against torch (or, where torch is not at hand, the fp32 file) on `tiles` tiles."""

    tiles: int
    class_agreement: Finite
    count_difference: Finite = Field(description="mean of |count - count of torch| / count of torch")
    worst_tile: Finite
    speed: Finite = Field(description="times as fast as the fp32 file in ONNX Runtime, on the CPU that measured it")


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
    t_max: Finite = Field(gt=0, description="largest count of a cell in the training data")
    tiling: Tiling = Tiling(tile=1024, halo=64)
    decoding: Decoding = "argmax"
    expectation: Expectation = Expectation(temperature=1.0, floor=0.0)
    scale: Finite = Field(default=1.0, gt=0, le=4, description="images are resized by this factor before counting")
    scales: Scales | None = Field(
        default=None, description="how the scale is chosen from the image; null: it is always `scale`"
    )
    mirror: bool = Field(default=False, description="average the counts with those of the mirrored image")
    familiarity: Familiarity | None = Field(default=None, description="null: the graph has no output `familiarity`")
    calibration: Calibration | None = None
    files: dict[Precision, ModelFile] = Field(default={}, description="one ONNX file per precision; bf16 has none")
    engines: dict[EngineName, dict[Precision, Parity]] = Field(
        default={}, description="parity in engines other than ONNX Runtime, whose parity stands with each file"
    )
    training: dict[str, Any] = Field(default={}, description="data and settings of the training run")
    metrics: dict[str, Finite] = {}

    @property
    def cell(self) -> int:
        return self.layout.cell

    @property
    def multiple(self) -> int:
        """Sides of a tile are multiples of this number of pixels."""
        return MULTIPLE

    @model_validator(mode="after")
    def check(self) -> Self:
        if "bf16" in self.files:
            raise ValueError("files: bf16 is computed from the fp32 file and has no file of its own")
        halo = -(-self.tiling.halo // self.cell) * self.cell
        if self.tiling.tile - 2 * halo < self.multiple:
            raise ValueError(
                f"tiling: a halo of {self.tiling.halo}, rounded up to cells of {self.cell}, leaves no cells of a tile"
            )
        if self.decoding == "regression":
            if self.heads or self.layout.classes != (1,):
                raise ValueError("heads must be empty and layout.classes (1,) for regression")
            return self
        if not self.heads:
            raise ValueError("heads must not be empty")
        classes = tuple(len(head.proxies) for head in self.heads)
        if classes != self.layout.classes:
            raise ValueError(f"heads have {classes} classes, but layout.classes is {self.layout.classes}")
        top = max(head.borders[-1] for head in self.heads)
        if self.t_max < top:
            raise ValueError(f"t_max {self.t_max:g} must be at least the last border {top:g}")
        return self

    def parity(self, engine: EngineName, precision: Precision) -> Parity | None:
        """What was measured for this engine and precision; None where nothing was."""
        if engine != "onnxruntime":
            return self.engines.get(engine, {}).get(precision)
        file = self.files.get(precision)
        return None if file is None else file.parity

    def read_by(self, decoding: Decoding | None) -> Self:
        """The artifact with another decoding of the same outputs; None is its own. Its range and its choice of scales
        belong to its own: another decoding counts at the fixed scale, without a range."""
        if decoding is None or decoding == self.decoding:
            return self
        if decoding != "argmax" or not self.heads:
            own = " or argmax" if self.heads and self.decoding != "argmax" else ""
            raise InputError(f"This model decodes by {self.decoding}{own}, not by {decoding}.")
        return self.model_copy(update={"decoding": decoding, "calibration": None, "scales": None})

    @property
    def inference_hash(self) -> str:
        """Hash of the fields that an exported graph depends on; also stored in the metadata of each ONNX file."""
        names = {"heads", "normalisation", "layout", "decoding", "expectation"}
        fields = self.model_dump(mode="json", include=names)
        if self.layout.decoder == "full":
            del fields["layout"]["decoder"]  # graphs of format 1 carry a hash without it
        if self.familiarity is not None:
            fields["familiarity"] = {"hidden": self.familiarity.hidden}  # the threshold is not part of the graph
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"

    def save(self, directory: Path) -> Path:
        """Write `artifact.json` into the directory atomically: a reader sees the old file or the new one."""
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
            raise ArtifactError(f"{directory} is not a model directory: it has no {FILE}.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{path} cannot be read: {error}.") from None
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: str, source: str = FILE) -> Self:
        try:
            fields = json.loads(text)
        except json.JSONDecodeError as error:
            raise ArtifactError(f"{source} is not complete JSON (line {error.lineno}: {error.msg}).") from None
        except (RecursionError, ValueError):
            raise ArtifactError(f"{source} is nested too deeply or holds a number with too many digits.") from None
        if not isinstance(fields, dict):
            raise ArtifactError(f"{source} must contain one JSON object.")
        found = fields.get("format")
        if found not in READABLE or found is True:  # True equals 1
            newer = isinstance(found, int) and found > FORMAT
            hint = "upgrade uepnet to read it" if newer else f"this uepnet reads formats {_listed(READABLE)}"
            raise ArtifactError(f"{source}: format is {found!r}; {hint}.")
        try:
            return cls.model_validate(fields | {"format": FORMAT})  # what is saved again has the new fields
        except ValidationError as error:
            raise ArtifactError(f"{source}: {_first(error)}.") from None


def _listed(numbers: tuple[int, ...]) -> str:
    return " and ".join(str(number) for number in numbers)


def _first(error: ValidationError) -> str:
    """The first validation error as `field: what is wrong`."""
    field, text = first_complaint(error)
    return f"{field}: {text}" if field else text


def model_directory(path: Path) -> Path:
    """The model directory that a path means: `path/model` for a run that has one, else the path itself."""
    inner = path / "model"
    found = os.path.isfile(inner / FILE)  # noqa: PTH113 - Path.is_file fails for names that are too long
    return inner if found else path
