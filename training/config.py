"""Everything a training run depends on, with defaults that work; the presets are the paper's recipe and a fast one."""

import json
import math
import os
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from uepnet.model.artifact import MULTIPLE, Normalisation
from uepnet.model.errors import DataError, InputError
from uepnet.training.partition import Heads, Method, Proxies
from uepnet.training.targets import Kernel

IMAGENET = Normalisation(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
NORMALISATION = {
    "vgg16": IMAGENET,
    "efficientnet-lite0": Normalisation(mean=(127, 127, 127), std=(128, 128, 128)),
}
WIDTH = {"vgg16": 512, "efficientnet-lite0": 128}
STAGES = {"vgg16": 5, "efficientnet-lite0": 8}  # of the encoder, the stem included
# The least that works of each setting that is a number.
LEAST = {
    "empty_share": 0.0,
    "width": 0,
    "freeze": 0,
    "crop": 0,
    "input_scale": 0.25,
    "jitter": 0.0,
    "lr": 1e-12,
    "encoder_rate": 0.0,
    "weight_decay": 0.0,
    "warm_up": 0,
    "steps": 1,
    "batch": 1,
    "count_loss": 0.0,
    "clip": 1e-12,
    "average": 0.0,
    "seed": 0,
    "workers": 0,
    "threads": 0,
    "validate_every": 1,
    "validate_images": 0,
    "checkpoint_seconds": 0.0,
}


@dataclass(frozen=True)
class Config:
    """Everything a run depends on; written to config.json, and the same file on resuming."""

    data: tuple[tuple[str, str], ...]  # (data set, root), ...
    repeat: tuple[int, ...] = ()  # how often a round shows each data set's images; () is once
    fold: int = 0  # of data sets that are cross-validated
    empty: str = ""  # a folder of pictures with nobody in them; every other one is held back
    empty_share: float = 0.0
    kernel: str = ""  # "", "fixed:SIGMA", "adaptive" or "adaptive:SMALLEST:LARGEST"; "" is each data set's own
    # network
    encoder: str = "efficientnet-lite0"
    width: int = 0  # 0 is the encoder's usual
    # ImageNet weights of the encoder, or a run or weights of ours to fine-tune; "": the bundled model's, or, for
    # VGG-16, ImageNet's from torchvision
    init: str = ""
    freeze: int = 0  # early encoder stages kept as they are (stem included)
    fixed_norms: bool = False  # batch norms keep the statistics they start with: trained as it will be served
    # intervals
    intervals: int = 25
    partition: Method = "uep"
    proxies: Proxies = "mean"
    heads: Heads = "interleaved"
    knee: float = 0.5
    cell: int = 8
    target: str = "classes"  # or "regression": the MSE baseline
    # tiles
    crop: int = 256  # 0 is the paper's: a quarter of the image's area
    scale: tuple[float, float] = (0.5, 1.5)
    input_scale: float = 1.0  # images are counted at so many times their size
    mirror: bool = True
    jitter: float = 0.3
    # optimisation
    optimiser: str = "adamw"
    lr: float = 1e-3
    encoder_rate: float = 1.0  # the encoder learns at so many times the rate: what ImageNet taught is soon forgotten
    weight_decay: float = 1e-2
    schedule: str = "cosine"  # or "plateau": divided by 10 when the training loss stagnates
    warm_up: int = 200
    steps: int = 4000
    batch: int = 8
    count_loss: float = 1.0  # weight of the error of expected counts, summed over blocks
    clip: float = 5.0
    average: float = 0.0  # keep a running mean of the weights with this decay; 0: those of the last step
    keep: str = "last"  # or "best": the weights with the lowest validation error
    seed: int = 0
    # machine
    device: str = "cpu"
    workers: int = 0
    threads: int = 0
    bfloat16: bool = False  # on a CPU that multiplies it: about 1.4 times as fast; CUDA always uses it
    compile: bool = False  # pays where batch norms learn: up to 1.4 times as fast, after a minute or two of compiling
    validate_every: int = 1000
    validate_images: int = 0  # 0 is all of them
    checkpoint_seconds: float = 240.0

    def __post_init__(self) -> None:
        """Settings that cannot work are refused before anything is read or written."""
        for name, least in LEAST.items():
            value = getattr(self, name)
            if not value >= least:  # nor is NaN
                raise InputError(f"--{name.replace('_', '-')} must be at least {least:g}, not {value:g}.")
        if self.crop % MULTIPLE:
            raise InputError(f"--crop must be a multiple of {MULTIPLE}, not {self.crop}.")
        if not 0 < self.scale[0] <= self.scale[1] < math.inf:
            raise InputError("--scale takes two positive numbers, the lower one first.")
        if self.input_scale > 4:
            raise InputError(f"--input-scale is at most 4, not {self.input_scale:g}.")
        if self.empty_share > 1:
            raise InputError(f"--empty-share is a share, at most 1, not {self.empty_share:g}.")
        if self.average >= 1:
            raise InputError(f"--average forgets a little at each step: below 1, such as 0.998, not {self.average:g}.")
        if any(times < 1 for times in self.repeat) or (self.repeat and len(self.repeat) != len(self.data)):
            raise InputError("--repeat takes a whole number of at least 1 for every data set, in their order.")
        if self.freeze > STAGES[self.encoder]:
            raise InputError(f"--freeze: the encoder {self.encoder} has {STAGES[self.encoder]} stages.")
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise InputError(f"--device is cpu, cuda or cuda:N, not {self.device!r}.")

    @property
    def kernel_override(self) -> Kernel | None:
        """One kernel for all samples, or None for each data set's own."""
        return parse_kernel(self.kernel)

    @classmethod
    def read(cls, run: Path) -> "Config":
        values = json.loads((run / "config.json").read_text())
        values["data"] = tuple((name, root) for name, root in values["data"])
        values["scale"] = tuple(values["scale"])
        values["repeat"] = tuple(values.get("repeat", ()))
        return cls(**{key: value for key, value in values.items() if key in {f.name for f in fields(cls)}})

    def write(self, run: Path) -> None:
        (run / "config.json").write_text(json.dumps(asdict(self), indent=1) + "\n")


PRESETS: dict[str, dict[str, Any]] = {
    # Larger than they are: small heads get the cells they need. The bundled model is trained so, too.
    "fast": {"scale": (0.8, 2.2), "input_scale": 1.2},
    "paper": {
        "encoder": "vgg16",
        "crop": 0,
        "scale": (0.3, 1.3),
        "jitter": 0.0,
        "optimiser": "sgd",
        "weight_decay": 5e-4,
        "schedule": "plateau",
        "warm_up": 0,
        "steps": 200_000,
        "batch": 1,
        "count_loss": 0.0,
        "keep": "best",
    },
}


def parse_kernel(text: str) -> Kernel | None:
    kind, *numbers = text.split(":")
    try:
        values = [float(number) for number in numbers]
        if kind == "" and not values:
            return None
        if kind == "fixed" and len(values) == 1 and values[0] > 0:
            return Kernel(fixed=values[0])
        if kind == "adaptive" and not values:
            return Kernel()
        if kind == "adaptive" and len(values) == 2 and 0 < values[0] <= values[1]:
            return Kernel(smallest=values[0], largest=values[1])
    except ValueError:
        pass
    raise DataError(f"A kernel is fixed:SIGMA, adaptive or adaptive:SMALLEST:LARGEST, not {text!r}.")


def threads_available() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
