"""The settings of a training run: one frozen class, from which `uepnet train` makes its flags.

Each field is a flag (`--weight-decay`) and a key of config.json and of `--config FILE` (`weight_decay`). Its
description is the flag's help; its group and unit are in `json_schema_extra`. Resuming relies on the defaults: a run
of an older version whose config.json lacks a field was trained with the default of that field.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from uepnet.model.artifact import MULTIPLE, Encoder, Normalisation
from uepnet.model.errors import InputError
from uepnet.training.config_errors import sentence
from uepnet.training.partition import T_0, Heads, Method, Proxies, TopInterval

if TYPE_CHECKING:
    from uepnet.training.data.targets import Kernel

LITE = tuple(name for name in get_args(Encoder) if name != "vgg16")
IMAGENET = Normalisation(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
NORMALISATION = {
    "vgg16": IMAGENET,
    **dict.fromkeys(LITE, Normalisation(mean=(127, 127, 127), std=(128, 128, 128))),
}
WIDTH = {"vgg16": 512, **dict.fromkeys(LITE, 128)}
STAGES = {"vgg16": 5, **dict.fromkeys(LITE, 8)}  # of the encoder, the stem included
FILE = "config.json"

TrainOn = Literal["fit", "all"]
Group = Literal["data", "network", "intervals and targets", "optimisation", "machine"]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=1e-12, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Device = Annotated[str, StringConstraints(pattern=r"^(cpu|cuda(:\d+)?)$")]


def _setting(default: Any, group: Group, description: str, unit: str | tuple[str, ...] = "", **limits: Any) -> Any:
    extra: dict[str, Any] = {"group": group, "unit": unit}
    return Field(default, description=description, json_schema_extra=extra, **limits)


class Config(BaseModel):
    """Everything a run depends on. It is written to config.json and read from there on resuming."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: tuple[tuple[str, str], ...] = Field(min_length=1, description="(data set, root) of each data set")
    repeat: tuple[Annotated[int, Field(ge=1)], ...] = _setting(
        (), "data", "how often each data set's images are used per epoch: a number for each data set (default: 1)", "N"
    )
    train_on: TrainOn = _setting(
        "fit",
        "data",
        "fit: train on the split fit; all: on the held-back images, too; the images of left_out.json are never used",
    )
    fold: int = Field(0, ge=0, description="of data sets that are cross-validated; 0 is none")
    empty: str = _setting("", "data", "folder of images without people; training uses every second one", "DIR")
    empty_share: Share = _setting(
        0.0, "data", "share of training tiles without people; 0.1 if --empty is given", "SHARE"
    )
    degraded: str = _setting(
        "", "data", "folder of degraded copies of the training images, made by `uepnet data degrade`", "DIR"
    )
    degraded_share: Share = _setting(
        0.0, "data", "share of training tiles taken from degraded copies; 0.3 if --degraded is given", "SHARE"
    )
    degrade: Share = _setting(
        0.0, "data", "share of training tiles degraded during loading (JPEG, noise, low light and others)", "SHARE"
    )
    left_out: tuple[str, ...] = Field((), description="DATASET/IMAGE of the images that are not trained on")

    encoder: Encoder = _setting("efficientnet-lite0", "network", "the network that extracts the features")
    decoder: Literal["full", "lean"] = _setting("full", "network", "decoder; lean costs a quarter of full")
    width: int = _setting(0, "network", "channels of the decoder; 0 for the encoder's usual width", "N", ge=0, le=4096)
    init: str = _setting(
        "",
        "network",
        "initial weights: a file of ImageNet weights of the encoder, or an earlier run or its weights (default: the "
        "bundled model; for vgg16 ImageNet weights that torchvision downloads)",
        "FILE",
    )
    freeze: int = _setting(
        0, "network", "number of encoder stages that are not trained, counted from the input", "STAGES", ge=0
    )
    fixed_norms: bool = _setting(
        False,
        "network",
        "batch norms keep their initial statistics; useful for fine-tuning and for batches of few tiles",
    )

    intervals: int = _setting(25, "intervals and targets", "classes of the first head, background included", "N", ge=3)
    partition: Method = _setting("uep", "intervals and targets", "how the counts are divided into intervals")
    proxies: Proxies = _setting("mean", "intervals and targets", "the count that stands for each interval")
    heads: Heads = _setting(
        "interleaved",
        "intervals and targets",
        "interleaved: two heads with overlapping intervals; parallel: two heads with equal intervals; single: one head",
    )
    knee: Positive = _setting(
        0.5, "intervals and targets", "count per cell at which two-linear changes its step", "PEOPLE"
    )
    top_interval: TopInterval = _setting(
        "largest",
        "intervals and targets",
        "what the top interval of uep holds; largest: the largest count alone, as in the published borders; filled: as "
        "much n*l as the others",
    )
    cell: Literal[8, 16, 32] = _setting(8, "intervals and targets", "side of a cell", "PIXELS")
    target: Literal["classes", "regression"] = _setting(
        "classes", "intervals and targets", "classify the count of each cell, or regress it (the paper's MSE baseline)"
    )
    output_relu: bool = _setting(
        False, "intervals and targets", "with --target regression: train with a ReLU on the output, as in the paper"
    )
    t0: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = _setting(
        T_0, "intervals and targets", "the first border: a cell with a smaller count is background", "PEOPLE"
    )
    kernel: str = _setting(
        "",
        "intervals and targets",
        "width of the Gaussian of a person in pixels: fixed:SIGMA, adaptive or adaptive:SMALLEST:LARGEST "
        "(default: the data set's own)",
        "KERNEL",
    )

    crop: int = _setting(
        256,
        "optimisation",
        "side of a training tile; 0 for tiles with a quarter of the image's area and its aspect ratio",
        "PIXELS",
        ge=0,
        multiple_of=MULTIPLE,
    )
    cut_margin: int = _setting(
        2,
        "optimisation",
        "number of rows of cells that the loss ignores along the edges where a tile was cut from the image",
        "CELLS",
        ge=0,
        le=64,
    )
    scale: tuple[Positive, Positive] = _setting(
        (0.5, 1.5), "optimisation", "range of the random scale of training images", ("LOW", "HIGH")
    )
    input_scale: float = _setting(
        1.0, "optimisation", "images are resized by this factor before they are counted", "FACTOR", ge=0.25, le=4
    )
    mirror: bool = _setting(True, "optimisation", "mirror training tiles at random")
    jitter: NotNegative = _setting(
        0.3, "optimisation", "strength of random changes to brightness, contrast and colour; 0 for none", "STRENGTH"
    )
    optimiser: Literal["adamw", "sgd"] = _setting("adamw", "optimisation", "the optimiser")
    momentum: float = _setting(0.9, "optimisation", "momentum of sgd", "FACTOR", ge=0, lt=1)
    lr: Positive = _setting(1e-3, "optimisation", "learning rate at the start", "RATE")
    encoder_rate: NotNegative = _setting(
        1.0, "optimisation", "the encoder's learning rate, relative to --lr; such as 0.1", "FACTOR"
    )
    weight_decay: NotNegative = _setting(1e-2, "optimisation", "weight decay; not applied to biases and norms", "DECAY")
    schedule: Literal["cosine", "plateau"] = _setting(
        "cosine",
        "optimisation",
        "the learning rate follows a cosine to 0, or is divided by 10 when the training loss stagnates",
    )
    warm_up: int = _setting(200, "optimisation", "steps over which the learning rate rises at the start", "STEPS", ge=0)
    steps: int = _setting(4000, "optimisation", "number of training steps", "STEPS", ge=1)
    batch: int = _setting(8, "optimisation", "tiles per step and process", "TILES", ge=1)
    count_loss: NotNegative = _setting(
        1.0,
        "optimisation",
        "weight of the loss on the expected counts of blocks of cells; 0 for cross-entropy alone",
        "WEIGHT",
    )
    clip: NotNegative = _setting(
        5.0, "optimisation", "the gradient is scaled down to at most this norm; 0 for no limit", "NORM"
    )
    average: float = _setting(
        0.0,
        "optimisation",
        "use a running mean of the weights with this decay, such as 0.998; 0 for no mean",
        "DECAY",
        ge=0,
        lt=1,
    )
    keep: Literal["last", "best"] = _setting(
        "last", "optimisation", "keep the weights of the last step, or those with the lowest validation error"
    )
    seed: int = _setting(0, "optimisation", "seed of all random choices", "N", ge=0)

    tile: int = _setting(
        1664,  # full HD at 1.5 times its size is two windows; with this halo seams change counts by less than 0.5 %
        "network",
        "maximum side of the windows in which images are counted (the paper: 1024 for UCF-QNRF)",
        "PIXELS",
        ge=64,
        le=8192,
        multiple_of=MULTIPLE,
    )
    halo: int = _setting(
        160,
        "network",
        "context that each window sees around the part that it counts",
        "PIXELS",
        ge=0,
        le=1024,
        multiple_of=8,
    )

    device: Device = _setting("cpu", "machine", "cpu, cuda or cuda:N", "DEVICE")
    workers: int = _setting(0, "machine", "processes that load data; 0 loads in the training process", "N", ge=0)
    threads: int = _setting(0, "machine", "CPU threads of the network; 0 for all cores", "N", ge=0)
    precision: Literal["auto", "fp32", "bfloat16"] = _setting(
        "auto",
        "machine",
        "number format of the arithmetic; auto is bfloat16 on CUDA and fp32 on a CPU, "
        "where bfloat16 can be 1.4 times as fast",
    )
    compile: bool = _setting(
        False,
        "machine",
        "compile the network, which takes one or two minutes; training is then up to 1.4 times as fast",
    )
    validate_every: int = _setting(1000, "machine", "steps between two validations", "STEPS", ge=1)
    validate_images: int = _setting(
        0, "machine", "approximate number of images per validation; 0 for all", "IMAGES", ge=0
    )
    checkpoint_seconds: NotNegative = _setting(240.0, "machine", "seconds between two checkpoints", "SECONDS")

    @model_validator(mode="before")
    @classmethod
    def rename(cls, values: Any) -> Any:
        """Up to version 0.2 `bfloat16` was a setting of its own."""
        if not isinstance(values, dict) or "bfloat16" not in values:
            return values
        precision = "bfloat16" if values["bfloat16"] else "auto"
        return {"precision": precision} | {name: value for name, value in values.items() if name != "bfloat16"}

    @model_validator(mode="after")
    def check(self) -> Self:
        """Combinations that cannot work are refused before anything is read or written."""
        if self.scale[0] > self.scale[1]:
            raise ValueError("--scale takes two numbers, the lower one first")
        if self.degraded_share and not self.degraded:
            raise ValueError("--degraded-share needs --degraded, the folder of the degraded copies")
        if self.repeat and len(self.repeat) != len(self.data):
            raise ValueError("--repeat takes one number for every data set, in the same order")
        if self.freeze > STAGES[self.encoder]:
            raise ValueError(f"--freeze: the encoder {self.encoder} has {STAGES[self.encoder]} stages")
        if self.tile - 2 * -(-self.halo // self.cell) * self.cell < MULTIPLE:
            raise ValueError(f"--halo {self.halo} leaves nothing of a window of --tile {self.tile}")
        if self.kernel:
            assert self.kernel_override  # a wrong kernel is an error
        return self

    @property
    def kernel_override(self) -> "Kernel | None":
        """One kernel for all samples, or None for each data set's own."""
        from uepnet.training.data.targets import parse_kernel  # needs scipy, which the flags and their help do not

        return parse_kernel(self.kernel)

    def changed(self, **values: Any) -> Self:
        """A copy with other values, which are checked as those of a new one are."""
        return self.of(dict(self) | values)

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "", flags: Collection[str] = ()) -> Self:
        """The configuration with these values. A wrong value is an error of one sentence.

        `source` says where the values come from; those in `flags` came from the command line.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise InputError(sentence(error, cls.model_fields, source, flags)) from None

    @classmethod
    def read(cls, run: Path) -> Self:
        """The configuration of a run. Fields that its version did not have yet get their defaults."""
        path = run / FILE
        try:
            values = json.loads(path.read_text())
        except FileNotFoundError:
            raise InputError(f"{run} is not a training run: it has no {FILE}.") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {error}.") from None
        if not isinstance(values, dict):
            raise InputError(f"{path} must hold one JSON object.")
        return cls.of(values, str(path))

    def write(self, run: Path) -> None:
        """A crash leaves the old file or the new one."""
        partial = run / f"{FILE}.partial"
        partial.write_text(json.dumps(self.model_dump(mode="json"), indent=1) + "\n")
        partial.replace(run / FILE)


PRESETS: dict[str, dict[str, Any]] = {
    # Tiles and images are enlarged: small heads get more cells. The bundled model is trained this way, too.
    "fast": {"scale": (0.8, 2.2), "input_scale": 1.2},
    # As published; docs/paper.md lists every setting that the paper leaves open, and every departure.
    "paper": {
        "encoder": "vgg16",
        "crop": 0,
        "scale": (0.3, 1.3),
        "jitter": 0.0,
        "cut_margin": 0,
        "train_on": "all",
        "tile": 2048,
        "output_relu": True,
        "optimiser": "sgd",
        "momentum": 0.0,
        "weight_decay": 0.0,
        "clip": 0.0,
        "schedule": "plateau",
        "warm_up": 0,
        "steps": 200_000,
        "batch": 1,
        "count_loss": 0.0,
        "precision": "fp32",
    },
}
