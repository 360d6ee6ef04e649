"""The familiarity head: fitted on striped images, it recognises stripes in a direction that it has not seen."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save_file

from uepnet.model.artifact import Artifact, Head, Layout, Normalisation, Scales, Tiling
from uepnet.model.count import count_image
from uepnet.model.errors import DataError, ModelError
from uepnet.model.network import UEPNet, build
from uepnet.model.runtime import Runtime
from uepnet.training import familiarity
from uepnet.training.data.dataset import Sample
from uepnet.training.evaluate import torch_runner
from uepnet.training.export import export
from uepnet.training.parity import Probe
from uepnet.training.prepare import load_network

SIDE = 240.0  # the network sees images at about their size
HEADS = (
    Head(borders=(0.00016, 0.5), proxies=(0.0, 0.2, 1.0)),
    Head(borders=(0.00016, 0.2, 1.0), proxies=(0.0, 0.1, 0.6, 1.5)),
)


def stripes(rng: np.random.Generator, upright: bool) -> NDArray[np.uint8]:
    """[224, 256, 3], lines in one direction with noise."""
    height, width = 224, 256
    along = np.arange(width if upright else height)
    wave = 127 + 90 * np.sin(along / rng.uniform(3, 5) + rng.uniform(0, 6))
    grey = np.broadcast_to(wave[None, :] if upright else wave[:, None], (height, width))
    return np.clip(grey[..., None] + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    folder, rng = tmp_path_factory.mktemp("stripes"), np.random.default_rng(1)
    made = []
    for number in range(24):
        path = folder / f"{number:02}.png"
        Image.fromarray(stripes(rng, upright=False)).save(path)
        made.append(Sample(path.name, path, lambda: np.array([[10.0, 10.0]])))
    return made


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return Artifact(
        version="1",
        layout=Layout(encoder="efficientnet-lite0", width=16, classes=(3, 4)),
        normalisation=Normalisation(mean=(127, 127, 127), std=(128, 128, 128)),
        heads=HEADS,
        t_max=3.0,
        tiling=Tiling(tile=512, halo=32),
        decoding="expectation",
    )


@pytest.fixture(scope="module")
def network(artifact: Artifact) -> UEPNet:
    torch.manual_seed(0)
    return build(artifact.layout).eval()


@pytest.fixture(scope="module")
def fitted(network: UEPNet, artifact: Artifact, samples: list[Sample]) -> familiarity.Fitted:
    return familiarity.fit(network, artifact, samples, seed=3, side=SIDE)


def test_images_like_the_training_images_are_familiar_and_others_are_not(
    network: UEPNet, fitted: familiarity.Fitted
) -> None:
    rng = np.random.default_rng(2)
    run_tiles = torch_runner(network, fitted.artifact, torch.device("cpu"))
    known = [count_image(stripes(rng, upright=False), fitted.artifact, run_tiles) for _ in range(10)]
    strange = [count_image(stripes(rng, upright=True), fitted.artifact, run_tiles) for _ in range(10)]
    assert sum(count.unfamiliar for count in strange) >= 8
    assert sum(count.unfamiliar for count in known) <= 2
    assert any("does not look like" in warning for count in strange for warning in count.warnings)


def test_the_first_pass_alone_gives_the_familiarity_of_all_passes(
    network: UEPNet, fitted: familiarity.Fitted, tmp_path: Path
) -> None:
    sharp = np.random.default_rng(4).integers(0, 256, (224, 256, 3), dtype=np.uint8)
    Image.fromarray(sharp).save(tmp_path / "sharp.png")
    scales = Scales(first_side=120, crowded=1e-9, beside=1e-9, empty_until=4, nobody=1e9)  # all of it again
    artifact = fitted.artifact.model_copy(update={"scales": scales})
    count = count_image(sharp, artifact, torch_runner(network, artifact, torch.device("cpu")))
    assert len(count.scales) > 1
    sample = Sample("sharp.png", tmp_path / "sharp.png", lambda: np.array([[10.0, 10.0]]))
    assert familiarity.familiarities(network, artifact, [sample]).tolist() == [count.familiarity]


def test_the_head_is_the_same_for_the_same_seed(
    artifact: Artifact, fitted: familiarity.Fitted, samples: list[Sample]
) -> None:
    torch.manual_seed(0)
    again = familiarity.fit(build(artifact.layout).eval(), artifact, samples, seed=3, side=SIDE)
    assert again.threshold == fitted.threshold
    assert torch.equal(again.head.inner.weight, fitted.head.inner.weight)


def test_a_saved_run_and_its_export_give_the_same_familiarity(
    network: UEPNet, fitted: familiarity.Fitted, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    plain = {name: value for name, value in network.state_dict().items() if not name.startswith("familiarity.")}
    save_file(plain, run / "weights.safetensors")
    familiarity.save(fitted.head, run)
    fitted.artifact.save(run)
    image = stripes(np.random.default_rng(5), upright=False)
    loaded = load_network(run, fitted.artifact)
    truth = count_image(image, fitted.artifact, torch_runner(loaded, fitted.artifact, torch.device("cpu")))
    probes = [Probe("stripes", image[:224, :224]), Probe("turned", np.ascontiguousarray(np.rot90(image)[:224, :224]))]
    export(run, tmp_path / "model", ["fp32"], probes=probes, unproven=True)
    runtime = Runtime(tmp_path / "model", device="cpu")
    served = count_image(image, runtime.artifact, runtime.run_tiles)
    assert served.familiarity == pytest.approx(truth.familiarity, abs=1e-3)
    assert served.unfamiliar == truth.unfamiliar


def test_a_graph_without_the_output_keeps_its_hash(artifact: Artifact, fitted: familiarity.Fitted) -> None:
    assert fitted.artifact.inference_hash != artifact.inference_hash
    assert fitted.artifact.model_copy(update={"familiarity": None}).inference_hash == artifact.inference_hash


def test_too_few_images_are_refused(network: UEPNet, artifact: Artifact, samples: list[Sample]) -> None:
    with pytest.raises(DataError, match="at least 12 training images, not 5"):
        familiarity.fit(network, artifact, samples[:5])


def test_a_missing_head_is_refused(network: UEPNet, fitted: familiarity.Fitted, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"familiarity\.safetensors does not hold"):
        familiarity.load(network, tmp_path, fitted.artifact)
