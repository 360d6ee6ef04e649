"""What a run starts from: its samples, its intervals, its artifact and its first weights."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from uepnet.model.artifact import Artifact, Decoding, Layout, Tiling
from uepnet.model.errors import DataError, ModelError, OutputError
from uepnet.model.network import UEPNet, build, encoder_weights
from uepnet.training import dataset
from uepnet.training.analyse import local_counts_of
from uepnet.training.config import NORMALISATION, WIDTH, Config
from uepnet.training.partition import Partition, partition

BUNDLED_WEIGHTS = Path(__file__).with_name("bundled.safetensors")


def initialise(network: UEPNet, encoder: str, init: str) -> None:
    """ImageNet weights for the encoder, or all weights of an earlier model of ours; the bundled one's by default."""
    if not init and encoder == "vgg16":
        from torchvision.models import VGG16_Weights

        state = VGG16_Weights.IMAGENET1K_FEATURES.get_state_dict(progress=False, check_hash=True)
        network.encoder.load_state_dict(encoder_weights(encoder, state))
        return
    path = Path(init) if init else BUNDLED_WEIGHTS
    path = path / "weights.safetensors" if path.is_dir() else path
    try:
        if path.suffix == ".safetensors":
            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"The starting weights {path} do not exist.") from None
    except Exception as error:  # noqa: BLE001 - whatever a broken file makes the two readers throw
        raise DataError(f"{path} is not a readable weights file ({type(error).__name__}).") from None
    ours = any(key.startswith("heads.") for key in state)
    target: nn.Module = network if ours else network.encoder
    state = state if ours else encoder_weights(encoder, state)
    fitting, missing = _fitting(target, state)
    if missing and not init:  # a decoder of another width: the encoder alone starts from the bundled model
        target = network.encoder
        fitting, missing = _fitting(target, {key.removeprefix("encoder."): value for key, value in state.items()})
    if missing:
        raise DataError(f"{path} does not fit the network {encoder}: {missing[0]} is missing or has another shape.")
    target.load_state_dict(fitting, strict=False)


def _fitting(target: nn.Module, state: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """What of `state` fits, and what is missing. Other intervals change the heads' last layers: those start anew."""
    wanted = target.state_dict()
    fitting = {key: value for key, value in state.items() if key in wanted and wanted[key].shape == value.shape}
    missing = [key for key in wanted if not (key in fitting or key.startswith("heads.") or key.endswith("_tracked"))]
    return fitting, missing


def empties(folder: str, held_back: bool) -> list[dataset.Sample]:
    """Pictures with nobody in them: every other one is for training, the others are for measuring."""
    return dataset.pictures(Path(folder))[1 if held_back else 0 :: 2] if folder else []


def samples_of(config: Config, split: str) -> list[dataset.Sample]:
    return [sample for part in parts_of(config, split) for sample in part]


def parts_of(config: Config, split: str) -> list[list[dataset.Sample]]:
    """The samples of each data set."""
    return [dataset.load(name, Path(root), split, config.fold or None) for name, root in config.data]


def repeated(parts: list[list[dataset.Sample]], times: tuple[int, ...]) -> list[dataset.Sample]:
    """What tiles are cut from: the samples of each data set, as often as it is repeated."""
    return [sample for part, number in zip(parts, times or (1,) * len(parts), strict=True) for sample in part * number]


def fit_partition(samples: list[dataset.Sample], config: Config) -> Partition:
    """The intervals, from the unscaled images of the training split."""
    counts = local_counts_of(samples, config.cell, config.kernel_override)
    return partition(counts, config.intervals, config.partition, config.proxies, config.heads, knee=config.knee)


def claim(folder: Path) -> None:
    """Make the folder of a new run; one that holds anything is left alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The run's folder {folder} cannot be made: {error.strerror}.") from None
    if any(folder.iterdir()):
        raise DataError(f"{folder} is not empty: choose another --out, or --resume the run that is there.")


def make_artifact(name: str, config: Config, samples: list[dataset.Sample]) -> Artifact:
    """What inference needs to know of a run; its version is the name of the run's folder."""
    regression = config.target == "regression"
    fitted = fit_partition(samples, replace(config, heads="single") if regression else config)
    decoding: Decoding = "regression" if regression else "expectation" if config.count_loss else "argmax"
    return Artifact(
        name="uepnet" if config.encoder == "vgg16" else "uepnet-light",
        version=re.sub(r"[^A-Za-z0-9._-]", "-", name)[:64] or "run",
        layout=Layout(
            encoder=config.encoder,  # type: ignore[arg-type]
            width=config.width or WIDTH[config.encoder],
            classes=(1,) if regression else tuple(len(head.proxies) for head in fitted.heads),
            cell=config.cell,  # type: ignore[arg-type]
        ),
        normalisation=NORMALISATION[config.encoder],
        heads=() if regression else fitted.heads,
        t_max=fitted.t_max,
        tiling=Tiling(tile=1664, halo=160),  # full HD at 1.5 times its size is two tiles; seams within half a per cent
        decoding=decoding,
        scale=config.input_scale,
        training={
            "data": [name for name, _ in config.data],
            "images": len(samples),
            "people": dataset.total_people(samples),
            "settings": {k: v for k, v in asdict(config).items() if k not in ("data", "empty", "init", "device")},
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
    return network.eval()
