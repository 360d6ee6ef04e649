"""The weights a network starts from: ImageNet's for the encoder, or all weights of an earlier model of ours.

The files of the light encoders come from PyPI (docs/training.md); torchvision downloads those of VGG-16.
"""

from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from uepnet.model.errors import DataError
from uepnet.model.network import EfficientNetLite, UEPNet, Vgg16

if TYPE_CHECKING:
    from torchvision.models import VGG16_Weights

BUNDLED_WEIGHTS = Path(__file__).with_name("bundled.safetensors")


def initialise(network: UEPNet, init: str) -> None:
    """Load the file or run `init`; without it the bundled model's weights, or ImageNet's for VGG-16."""
    encoder = network.layout.encoder
    if not init and encoder == "vgg16":
        network.encoder.load_state_dict(encoder_weights(network.encoder, _download()))
        return
    path = Path(init) if init else BUNDLED_WEIGHTS
    path = path / "weights.safetensors" if path.is_dir() else path
    state = _read(path)
    ours = any(key.startswith("heads.") for key in state)
    target: nn.Module = network if ours else network.encoder
    state = state if ours else encoder_weights(network.encoder, state)
    fitting, missing = _fitting(target, state)
    if missing and not init:  # the decoder differs from the bundled one: only the encoder starts from it
        target = network.encoder
        fitting, missing = _fitting(target, {key.removeprefix("encoder."): value for key, value in state.items()})
    if missing and not init:
        raise DataError(f"The bundled model has another encoder than {encoder}: give its ImageNet weights with --init.")
    if missing:
        raise DataError(f"{path} does not fit the network {encoder}: {missing[0]} is missing or has another shape.")
    target.load_state_dict(fitting, strict=False)


def vgg16_weights() -> "VGG16_Weights":
    """Torchvision's weights that expect the input that we feed: RGB with ImageNet's mean and standard deviation.

    `IMAGENET1K_FEATURES`, the other weights of VGG-16, expect values about 57 times as large.
    """
    from torchvision.models import VGG16_Weights

    return VGG16_Weights.IMAGENET1K_V1


def _download() -> dict[str, Tensor]:
    try:
        state: dict[str, Tensor] = vgg16_weights().get_state_dict(progress=False, check_hash=True)
    except (OSError, HTTPException, RuntimeError) as error:  # no network; an answer or a file that was cut off
        raise DataError(
            f"The ImageNet weights of VGG-16 cannot be downloaded ({error}): give a file that holds them with --init."
        ) from None
    return state


def _read(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"The starting weights {path} do not exist.") from None
    except Exception as error:  # noqa: BLE001 - whatever a broken file makes the two readers throw
        raise DataError(f"{path} is not a readable weights file ({type(error).__name__}).") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError(f"{path} does not hold named weights alone: save the state_dict of the network by itself.")
    return state


def _fitting(target: nn.Module, state: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """What of `state` fits, and what is missing. Other intervals change the heads' last layers: those start anew."""
    wanted = target.state_dict()
    fitting = {key: value for key, value in state.items() if key in wanted and wanted[key].shape == value.shape}
    missing = [key for key in wanted if not (key in fitting or key.startswith("heads.") or key.endswith("_tracked"))]
    return fitting, missing


def encoder_weights(encoder: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """ImageNet weights under the key names of their origin -> our encoder's key names."""
    if isinstance(encoder, Vgg16):
        return {key: value for key, value in state.items() if key.startswith("features.")}
    if "_conv_stem.weight" not in state:  # already ours
        return state
    ours = _bn_and_conv(state, "_conv_stem", "_bn0", "stem")
    repeats = [len(stage) for stage in cast(EfficientNetLite, encoder).stages]  # type: ignore[arg-type]
    starts = [sum(repeats[:stage]) for stage in range(len(repeats) + 1)]
    for stage, (start, end) in enumerate(pairwise(starts)):
        for number in range(start, end):
            old, new = f"_blocks.{number}.", f"stages.{stage}.{number - start}."
            if f"{old}_depthwise_conv.weight" not in state:  # of a smaller encoder: what is missing is reported
                continue
            if f"{old}_expand_conv.weight" in state:
                ours |= _bn_and_conv(state, f"{old}_expand_conv", f"{old}_bn0", f"{new}expand")
            ours |= _bn_and_conv(state, f"{old}_depthwise_conv", f"{old}_bn1", f"{new}depthwise")
            ours |= _bn_and_conv(state, f"{old}_project_conv", f"{old}_bn2", f"{new}project")
    return ours


def _bn_and_conv(state: dict[str, Tensor], conv: str, norm: str, ours: str) -> dict[str, Tensor]:
    renamed = {f"{ours}.conv.weight": state[f"{conv}.weight"]}
    for part in ("weight", "bias", "running_mean", "running_var"):
        renamed[f"{ours}.bn.{part}"] = state[f"{norm}.{part}"]
    return renamed
