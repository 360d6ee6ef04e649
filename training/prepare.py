"""The start of a run: its samples, intervals and artifact."""

import re
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from uepnet.model.artifact import Artifact, Decoding, Layout, Tiling
from uepnet.model.errors import DataError, ModelError
from uepnet.model.network import UEPNet, build
from uepnet.training import familiarity
from uepnet.training.config import NORMALISATION, WIDTH, Config
from uepnet.training.data import dataset
from uepnet.training.data.degraded_copies import with_copies
from uepnet.training.data.seen import KEY, digests
from uepnet.training.data.targets import local_counts_of
from uepnet.training.partition import Partition, partition

PLACES = ("data", "degraded", "empty", "init", "device")  # settings that name folders and machines


def empties(folder: str, held_back: bool) -> list[dataset.Sample]:
    """Images without people: every other one is for training, the rest for measuring."""
    return dataset.pictures(Path(folder))[1 if held_back else 0 :: 2] if folder else []


def samples_of(config: Config, split: str) -> list[dataset.Sample]:
    return [sample for part in parts_of(config, split) for sample in part]


def parts_of(config: Config, split: str) -> list[list[dataset.Sample]]:
    """The samples of each data set."""
    return [dataset.load(name, Path(root), split, config.fold or None) for name, root in config.data]


def held_back(config: Config) -> list[dataset.Sample]:
    """The validation images. A run on all training images does without them if there are too few to hold any back."""
    try:
        return samples_of(config, "val")
    except DataError:
        if config.train_on == "all":
            return []
        raise


def training_parts(config: Config) -> list[list[dataset.Sample]]:
    """The samples of each data set that are trained on."""
    parts = parts_of(config, "fit" if config.train_on == "fit" else "usable")
    chosen = []
    for (name, root), part in zip(config.data, parts, strict=True):
        kept = [sample for sample in part if f"{name}/{sample.name}" not in config.left_out]
        chosen.append(with_copies(kept, name, Path(root), Path(config.degraded)) if config.degraded_share else kept)
    return chosen


def repeated(parts: list[list[dataset.Sample]], times: tuple[int, ...]) -> list[dataset.Sample]:
    """The samples that tiles are cut from: those of each data set, as often as it is repeated."""
    return [sample for part, number in zip(parts, times or (1,) * len(parts), strict=True) for sample in part * number]


def fit_partition(samples: list[dataset.Sample], config: Config) -> Partition:
    """The intervals of the images that are trained on, at the scale at which the model counts."""
    counts = local_counts_of(samples, config.cell, config.kernel_override, config.input_scale)
    return partition(
        counts,
        config.intervals,
        config.partition,
        config.proxies,
        config.heads,
        t_0=config.t0,
        knee=config.knee,
        top=config.top_interval,
    )


def version_of(name: str) -> str:
    """The version of a model whose run's folder has this name."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:64] or "run"


def make_artifact(name: str, config: Config, samples: list[dataset.Sample]) -> Artifact:
    """The artifact of a run; its version is the name of the folder of the run."""
    regression = config.target == "regression"
    fitted = fit_partition(samples, config.changed(heads="single") if regression else config)
    decoding: Decoding = "regression" if regression else "expectation" if config.count_loss else "argmax"
    return Artifact(
        name="uepnet" if config.encoder == "vgg16" else "uepnet-light",
        version=version_of(name),
        layout=Layout(
            encoder=config.encoder,
            decoder=config.decoder,
            width=config.width or WIDTH[config.encoder],
            classes=(1,) if regression else tuple(len(head.proxies) for head in fitted.heads),
            cell=config.cell,
        ),
        normalisation=NORMALISATION[config.encoder],
        heads=() if regression else fitted.heads,
        t_max=fitted.t_max,
        tiling=Tiling(tile=config.tile, halo=config.halo),
        decoding=decoding,
        scale=config.input_scale,
        training={
            "data": [name for name, _ in config.data],
            "images": len(samples),
            "people": dataset.total_people(samples),
            "settings": {name: value for name, value in config.model_dump(mode="json").items() if name not in PLACES},
            KEY: digests(sample.image for sample in samples),
            "torch": torch.__version__,
        },
    )


def load_network(run: Path, artifact: Artifact) -> UEPNet:
    """The trained network of a run, ready to count."""
    network = build(artifact.layout)
    try:
        network.load_state_dict(load_file(run / "weights.safetensors"))
    except (RuntimeError, SafetensorError, OSError):
        raise ModelError(
            f"{run / 'weights.safetensors'} does not hold the weights that artifact.json describes."
        ) from None
    familiarity.load(network, run, artifact)
    return network.eval()
