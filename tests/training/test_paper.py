"""`--preset paper` trains as published, and the published interval borders of part A come out."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.scenes import release, starting_weights

from uepnet import Counter
from uepnet.cli import main
from uepnet.commands import train as command
from uepnet.model.artifact import Artifact, Layout
from uepnet.model.errors import InputError
from uepnet.model.network import Vgg16, build
from uepnet.training.config import NORMALISATION, Config
from uepnet.training.data import dataset
from uepnet.training.data.targets import local_counts_of
from uepnet.training.distributed import autocast
from uepnet.training.export import export
from uepnet.training.inference_graph import normalise
from uepnet.training.losses import TrainingLoss
from uepnet.training.metrics_log import StepMetrics
from uepnet.training.parity import cut_probes
from uepnet.training.partition import partition
from uepnet.training.prepare import held_back, make_artifact, training_parts
from uepnet.training.starting_weights import initialise, vgg16_weights
from uepnet.training.train import make_optimiser, train

# The borders of part A in the authors' code, rounded to four digits.
PUBLISHED = (
    *(0.00016, 0.004820, 0.01210, 0.02165, 0.03358, 0.04811, 0.06571, 0.08683, 0.1121, 0.1422, 0.1784, 0.2217),
    *(0.2733, 0.3356, 0.4108, 0.5030, 0.6175, 0.7622, 0.9507, 1.206, 1.571, 2.139, 3.233, 7.915),
)
# The proxies of its first head above the background, which are the borders of its second head.
PUBLISHED_PROXIES = (
    *(0.001929, 0.008083, 0.01649, 0.02720, 0.04038, 0.05636, 0.07564, 0.09873, 0.1263, 0.1593, 0.1986, 0.2460),
    *(0.3025, 0.3707, 0.4537, 0.5561, 0.6838, 0.8476, 1.064, 1.365, 1.806, 2.541, 3.876, 8.248),
)


def paper(*options: str) -> Config:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    line = ["--preset", "paper", "--dataset", "shanghaitech-a", "--root", "here", *options]
    return command._config(parser.parse_args(line))


@pytest.mark.data
def test_the_published_borders_and_proxies_of_part_a_come_out(real_data: Callable[[str], Path]) -> None:
    samples = dataset.load("shanghaitech-a", real_data("ShanghaiTech"), "train")
    first, second = partition(local_counts_of(samples, 8)).heads
    borders = np.array(first.borders)
    off = np.abs(borders / PUBLISHED - 1)
    assert borders.shape == (24,)
    assert off[:22].max() < 0.05
    assert off.max() < 0.10
    assert second.borders[1:] == first.proxies[1:]
    assert np.abs(np.array(first.proxies[1:]) / PUBLISHED_PROXIES - 1)[:-1].max() < 0.05


def test_the_preset_has_the_settings_of_the_paper() -> None:
    config = paper()
    assert (config.encoder, config.cell, config.intervals, config.t0) == ("vgg16", 8, 25, 1.6e-4)
    assert (config.partition, config.proxies, config.heads) == ("uep", "mean", "interleaved")
    assert (config.scale, config.input_scale, config.crop, config.mirror) == ((0.3, 1.3), 1.0, 0, True)
    assert (config.optimiser, config.lr, config.momentum, config.weight_decay) == ("sgd", 1e-3, 0.0, 0.0)
    assert (config.batch, config.schedule, config.warm_up, config.clip) == (1, "plateau", 0, 0.0)
    assert (config.count_loss, config.cut_margin, config.jitter, config.degrade) == (0.0, 0, 0.0, 0.0)
    assert (config.train_on, config.precision, config.output_relu) == ("all", "fp32", True)


def test_the_optimiser_of_the_preset_is_plain_sgd() -> None:
    network = build(Layout(encoder="vgg16", width=16, classes=(3, 4)))
    optimiser = make_optimiser(network, paper())
    assert isinstance(optimiser, torch.optim.SGD)
    for group in optimiser.param_groups:
        assert (group["momentum"], group["weight_decay"], group["lr"]) == (0.0, 0.0, 1e-3)
    assert sum(len(group["params"]) for group in optimiser.param_groups) == len(list(network.parameters()))


def test_training_on_all_images_includes_the_validation_images_and_does_not_call_the_error_a_validation_error(
    tmp_path: Path,
) -> None:
    root = release(tmp_path / "crowds", images=24)
    start = starting_weights(tmp_path / "start.safetensors")
    config = Config(
        data=(("shanghaitech-b", str(release(tmp_path / "b", images=24, part="B"))),),
        train_on="all",
        init=str(start),
        width=16,
        intervals=6,
        crop=64,
        batch=1,
        steps=1,
        threads=1,
    )
    names = {sample.name for part in training_parts(config) for sample in part}
    assert {sample.name for sample in held_back(config)} <= names and len(names) == 24
    seen: list[StepMetrics] = []
    train(tmp_path / "run", config, watch=seen.append)
    assert set(seen[-1].values) == {"train_mae", "train_rmse"}
    assert "val_mae" not in Artifact.load(tmp_path / "run").metrics
    assert root.is_dir()


def test_training_on_all_of_very_few_images_needs_no_validation_images(tmp_path: Path) -> None:
    root = release(tmp_path / "crowds", images=4, part="B")
    start = starting_weights(tmp_path / "start.safetensors")
    values = {"init": str(start), "width": 16, "intervals": 6, "crop": 64, "batch": 1, "steps": 1, "threads": 1}
    data = (("shanghaitech-b", str(root)),)
    with pytest.raises(InputError, match="too few to hold back any"):
        train(tmp_path / "fit", Config.of({"data": data, **values}))
    train(tmp_path / "all", Config.of({"data": data, "train_on": "all", "keep": "best", **values}))
    assert (tmp_path / "all" / "weights.safetensors").is_file()
    assert Artifact.load(tmp_path / "all").metrics.keys() == {"step"}


def test_the_first_border_and_the_window_are_settings(tmp_path: Path) -> None:
    root = release(tmp_path / "crowds", images=12)
    config = paper("--t0", "0.001", "--tile", "1024", "--halo", "64", "--intervals", "6")
    config = config.changed(data=(("shanghaitech-a", str(root)),))
    artifact = make_artifact("run", config, dataset.load("shanghaitech-a", root))
    assert {head.borders[0] for head in artifact.heads} == {0.001}
    assert (artifact.tiling.tile, artifact.tiling.halo) == (1024, 64)
    with pytest.raises(InputError, match="--halo 512 leaves nothing of a window of --tile 1024"):
        paper("--tile", "1024", "--halo", "512")


def test_a_relu_on_the_output_gives_no_gradient_to_negative_predictions() -> None:
    regression = Artifact.model_construct(decoding="regression", heads=())
    counts = torch.tensor([[[1.0, 1.0]]])
    for relu in (False, True):
        logits = torch.tensor([[[[-0.5, 0.5]]]], requires_grad=True)
        TrainingLoss(regression, 0.0, relu)([logits], counts)["loss"].backward()  # type: ignore[no-untyped-call]
        assert logits.grad is not None
        negative, positive = logits.grad.flatten().tolist()
        assert (negative == 0) == relu and positive < 0


def test_the_precision_is_a_choice() -> None:
    cpu = torch.device("cpu")
    assert not autocast(cpu, "fp32")._enabled and not autocast(cpu, "auto")._enabled
    assert autocast(cpu, "bfloat16")._enabled


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_fp32_on_cuda_is_neither_bfloat16_nor_tf32() -> None:
    cuda = torch.device("cuda")
    assert autocast(cuda, "auto")._enabled
    assert not autocast(cuda, "fp32")._enabled
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.data
def test_features_of_a_photograph_are_those_that_the_weights_were_trained_to_give(
    real_data: Callable[[str], Path],
) -> None:
    network = build(Layout(encoder="vgg16", width=16, classes=(3,))).eval()
    initialise(network, str(real_data("weights") / "vgg16_imagenet_features.pth"))
    assert isinstance(network.encoder, Vgg16)
    image = dataset.load("shanghaitech-b", real_data("ShanghaiTech"), "val")[0].load_image()[:224, :224]
    tile = torch.from_numpy(np.ascontiguousarray(image))
    ours = NORMALISATION["vgg16"]
    with torch.inference_mode():
        features = network.encoder(normalise(tile[None], torch.tensor(ours.mean), torch.tensor(ours.std)))[-1]
        transform = vgg16_weights().transforms()
        pixels = tile.permute(2, 0, 1) / 255
        expected = (pixels - torch.tensor(transform.mean)[:, None, None]) / torch.tensor(transform.std)[:, None, None]
        theirs = network.encoder(expected[None])[-1]
    assert torch.nn.functional.cosine_similarity(features.flatten(), theirs.flatten(), dim=0) > 0.999
    # ReLU features of ImageNet weights are sparse and of order one. Input of another scale saturates or silences them.
    assert 0.05 < float((features > 0).float().mean()) < 0.6
    assert 0.05 < float(features.mean()) < 5


@pytest.mark.data
def test_a_short_run_of_the_preset_starts_at_chance_learns_and_is_exported_with_argmax(
    real_data: Callable[[str], Path], tmp_path: Path
) -> None:
    weights = real_data("weights") / "vgg16_imagenet_features.pth"
    options = ("--lr", "0.02", "--crop", "64", "--steps", "8", "--intervals", "6")  # at 0.001 learning takes longer
    root = release(tmp_path / "crowds", images=12)
    config = paper("--init", str(weights), "--validate-images", "1", *options)
    config = config.changed(data=(("shanghaitech-a", str(root)),), threads=1, scale=(1.0, 1.0))
    losses: list[float] = []

    def watch(seen: StepMetrics) -> None:
        losses.extend([seen.values["loss"]] if seen.kind == "train" else [])

    train(tmp_path / "run", config, watch=watch)
    assert losses[0] == pytest.approx(math.log(6) + math.log(7), rel=0.02)  # two heads that know nothing
    assert min(losses) < 0.8 * losses[0]  # no tile gives that to a network that knows nothing
    images = sorted(root.rglob("*.jpg"))
    probes = cut_probes(images[:2], 2, ((64, 64),), seed=0)
    exported = export(tmp_path / "run", tmp_path / "model", ["fp32"], probes=probes, decoding="argmax", unproven=True)
    assert exported.artifact.decoding == "argmax" and exported.artifact.heads == Artifact.load(tmp_path / "run").heads
    counter = Counter(tmp_path / "model", device="cpu", engine="onnxruntime")
    assert counter.count(images[0]).range is None


def test_help_names_the_values_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for words in ("default: 0.9; paper: 0.0", "default: fit; paper: all", "default: 5.0; paper: 0.0"):
        assert words in text
