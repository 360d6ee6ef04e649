"""The checkpoint that the paper's authors published -> a run of ours. Nothing of theirs comes with this project.

Their checkpoint is four files, `PREFIX_net_PART.pth`, each the weights of one part of the network. Their intervals are
literals in their code: whoever has that code writes them into a JSON file. The authors subtract a mean and do not
divide by a standard deviation; the artifact records that.
"""

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from uepnet.model.artifact import Artifact, Head, Layout, Normalisation, Tiling
from uepnet.model.errors import DataError
from uepnet.model.network import build
from uepnet.model.validation import first_complaint
from uepnet.training.prepare import version_of
from uepnet.training.run_folder import claimed
from uepnet.training.weights_file import save_weights

PARTS = ("VggBackbone", "DivideUpsample0", "DivideUpsample1", "ClsPred")
MEAN = (0.4501, 0.4454, 0.4301)  # of RGB in [0, 1], as their code for part A subtracts it
STAGES = ((0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28))  # positions of VGG-16's convolutions in our encoder
LICENCE = "The authors publish their checkpoint for academic use only; that holds for this run, too."


def import_checkpoint(
    checkpoint: Path, intervals: Path, out: Path, mean: tuple[float, float, float] = MEAN
) -> Artifact:
    """Write a run with the published weights and the intervals of the JSON file `intervals`."""
    heads, t_max = read_intervals(intervals)
    state = converted(read_parts(checkpoint))
    artifact = Artifact(
        name="uepnet",
        version=version_of(out.resolve().name),
        layout=Layout(encoder="vgg16", width=512, classes=tuple(len(head.proxies) for head in heads), cell=8),
        normalisation=Normalisation(mean=_bytes(mean), std=(255.0, 255.0, 255.0)),
        heads=heads,
        t_max=t_max,
        tiling=Tiling(tile=2048, halo=160),
        decoding="argmax",
        training={"imported": "published checkpoint of the paper's authors", "licence": LICENCE},
    )
    wanted = build(artifact.layout).state_dict()
    for name, tensor in wanted.items():
        if name not in state or state[name].shape != tensor.shape:
            found = "is missing" if name not in state else f"has the shape {list(state[name].shape)}"
            raise DataError(
                f"{checkpoint} does not fit the published network and these intervals: {name} {found}, "
                f"expected {list(tensor.shape)}."
            )
    with claimed(out):
        save_weights({name: state[name] for name in wanted}, out / "weights.safetensors")
        artifact.save(out)
    return artifact


def _bytes(mean: tuple[float, float, float]) -> tuple[float, float, float]:
    red, green, blue = (round(255 * value, 6) for value in mean)
    return red, green, blue


def read_intervals(path: Path) -> tuple[tuple[Head, ...], float]:
    """Heads and t_max of a JSON file: {"t_max": ..., "heads": [{"borders": [...], "proxies": [...]}, ...]}."""
    try:
        table = json.loads(path.read_text())
        heads = tuple(Head(borders=head["borders"], proxies=head["proxies"]) for head in table["heads"])
        t_max = float(table["t_max"])
    except ValidationError as error:
        field, text = first_complaint(error)
        raise DataError(f"{path}: {field + ': ' if field else ''}{text}.") from None
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise DataError(
            f"{path} is not a table of intervals ({type(error).__name__}: {error}): it must look like "
            '{"t_max": 8.7, "heads": [{"borders": [...], "proxies": [...]}, ...]}.'
        ) from None
    if len(heads) != 2:
        raise DataError(f"{path} must have the intervals of two heads, not of {len(heads)}.")
    return heads, t_max


def read_parts(checkpoint: Path) -> dict[str, dict[str, Tensor]]:
    """The weights of each part: from a folder, from one of the four files and its siblings, or from one file."""
    if checkpoint.is_dir():
        found = sorted(checkpoint.glob(f"*_net_{PARTS[0]}.pth"))
        if len(found) != 1:
            raise DataError(
                f"{checkpoint} must hold one file *_net_{PARTS[0]}.pth, not {len(found)}: name one of them."
            )
        checkpoint = found[0]
    for part in PARTS:
        prefix, separator, _ = checkpoint.name.partition(f"_net_{part}.pth")
        if separator:
            siblings = {name: checkpoint.with_name(f"{prefix}_net_{name}.pth") for name in PARTS}
            return {name: _plain(_load(path)) for name, path in siblings.items()}
    whole = _load(checkpoint)
    if all(isinstance(whole.get(part), dict) for part in PARTS):
        return {part: _plain(whole[part]) for part in PARTS}
    flat = {key.removeprefix("net"): value for key, value in _plain(whole).items()}
    return {
        part: {key.removeprefix(f"{part}."): value for key, value in flat.items() if key.startswith(f"{part}.")}
        for part in PARTS
    }


def _load(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist. A published checkpoint is the four files *_net_PART.pth.") from None
    except Exception as error:  # noqa: BLE001 - whatever a broken file makes torch raise
        raise DataError(f"{path} is not a readable checkpoint ({type(error).__name__}).") from None
    if not isinstance(state, dict):
        raise DataError(f"{path} does not hold named weights.")
    return state


def _plain(state: dict[str, Any]) -> dict[str, Tensor]:
    """Without the prefix that training on several GPUs adds."""
    return {key.removeprefix("module."): value for key, value in state.items() if isinstance(value, Tensor)}


def converted(parts: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """The authors' key names -> ours."""
    backbone = parts["VggBackbone"]
    if any("running_mean" in key for key in backbone):
        raise DataError("This checkpoint has batch norms, but the published network has none.")
    if "frontend_2.1.weight" in backbone:
        raise DataError("This checkpoint pools at the start of each stage, but the published network pools at its end.")
    state = {}
    for part, old, new in _layers():
        for kind in ("weight", "bias"):
            if f"{old}.{kind}" in parts[part]:
                state[f"{new}.{kind}"] = parts[part][f"{old}.{kind}"]
    return state


def _layers() -> list[tuple[str, str, str]]:
    """(part, its layer, our layer) of every convolution."""
    layers = [
        ("VggBackbone", f"frontend_{stage}.{2 * index}", f"encoder.features.{position}")
        for stage, positions in enumerate(STAGES, 1)
        for index, position in enumerate(positions)
    ]
    for step in range(2):
        names = {"conv1.0": "reduce.0", "conv2.0": "join.0.0", "conv2.2": "join.1.0"}
        layers += [(f"DivideUpsample{step}", old, f"ups.{step}.{new}") for old, new in names.items()]
    for head in range(2):
        layers += [("ClsPred", f"PredBackbone{head + 1}.0", f"heads.{head}.0")]
        layers += [("ClsPred", f"head{head + 1}", f"heads.{head}.2")]
    return layers
