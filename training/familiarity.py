"""How a model learns to say "I do not know this kind of image", from its training images alone.

A small head on the encoder's deepest features tells the training images from strange versions of the same images:
turned by 90, 180 or 270 degrees, or shrunk to tiny people in a mosaic. It learns which textures, layouts and head
sizes are familiar; images of a kind that was never trained on then look strange, too. The score of an image is the
mean over all its cells. The threshold is the first percentile over training images that the head was not fitted on.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from uepnet.model import network as networks
from uepnet.model.artifact import MULTIPLE, Artifact, Familiarity
from uepnet.model.count import count_image
from uepnet.model.errors import DataError, ModelError
from uepnet.model.network import DEEPEST_STRIDE, UEPNet
from uepnet.model.scale import resized
from uepnet.training.data.dataset import Sample
from uepnet.training.evaluate import torch_runner
from uepnet.training.inference_graph import normalise
from uepnet.training.weights_file import save_weights

FILE = "familiarity.safetensors"  # beside weights.safetensors in a run
PREFIX = "familiarity."  # of its weights among those of a network
HIDDEN = 64
SIDE = 720.0  # images are seen at about the area of a square of this side, as in the first of several passes ...
WANDER = (0.75, 1.33)  # ... times a random factor
SHRINK = (0.15, 0.35)  # of the images in a mosaic
MOSAIC = (2, 3)  # rows and columns
CELLS = 128  # feature vectors that are kept per image
STEPS, BATCH, RATE = 800, 2048, 2e-3
HELD = 3  # every third image takes no part in the fit: the threshold comes from those
QUANTILE = 0.01
FEWEST = 12  # images

Image = NDArray[np.uint8]
Watch = Callable[[], None]


@dataclass(frozen=True)
class Fitted:
    head: networks.FamiliarityHead
    artifact: Artifact  # with the threshold

    @property
    def threshold(self) -> float:
        assert self.artifact.familiarity is not None
        return self.artifact.familiarity.threshold


def fit(
    network: UEPNet,
    artifact: Artifact,
    samples: Sequence[Sample],
    seed: int = 0,
    watch: Watch = lambda: None,
    side: float = SIDE,
) -> Fitted:
    """Fit the head and its threshold on training images, pictures without people included."""
    if len(samples) < FEWEST:
        raise DataError(f"Familiarity needs at least {FEWEST} training images, not {len(samples)}.")
    rng = np.random.default_rng(seed)
    order = [samples[index] for index in rng.permutation(len(samples))]
    held, fitted = order[::HELD], [sample for index, sample in enumerate(order) if index % HELD]
    head = _head(network, fitted, artifact, rng, watch, side)
    network.familiarity = head
    entry = Familiarity(threshold=0.0, hidden=HIDDEN, images=len(held))
    artifact = artifact.model_copy(update={"familiarity": entry})
    scores = familiarities(network, artifact, held, watch)
    threshold = float(np.quantile(scores, QUANTILE))
    entry = entry.model_copy(update={"threshold": threshold})
    return Fitted(head, artifact.model_copy(update={"familiarity": entry}))


def familiarities(
    network: UEPNet, artifact: Artifact, samples: Sequence[Sample], watch: Watch = lambda: None
) -> NDArray[np.float64]:
    """The familiarity of each image, through the path that is served, which takes it from the first pass."""
    run_tiles = torch_runner(network, artifact, torch.device("cpu"))
    artifact = first_pass_alone(artifact)
    scores = []
    for sample in samples:
        familiarity = count_image(sample.load_image(), artifact, run_tiles).familiarity
        assert familiarity is not None  # the artifact has one
        scores.append(familiarity)
        watch()
    return np.array(scores)


def first_pass_alone(artifact: Artifact) -> Artifact:
    """The artifact of a model that never looks at a part of an image again."""
    if artifact.scales is None:
        return artifact
    never = {"crowded": math.inf, "beside": math.inf, "doubt": math.inf, "empty_until": 0.0}
    return artifact.model_copy(update={"scales": artifact.scales.model_copy(update=never)})


def save(head: networks.FamiliarityHead, run: Path) -> None:
    partial = run / f"{FILE}.partial"
    save_weights(head.state_dict(), partial)
    partial.replace(run / FILE)


def attach(network: UEPNet, artifact: Artifact) -> None:
    """Give the network an empty head where the artifact has one: its weights are part of the network's from now on."""
    if artifact.familiarity is not None:
        network.familiarity = _new(network, artifact.familiarity.hidden)


def load(network: UEPNet, run: Path, artifact: Artifact) -> None:
    """Give the network the familiarity head of its run, where it has one."""
    attach(network, artifact)
    if network.familiarity is None:
        return
    try:
        network.familiarity.load_state_dict(load_file(run / FILE))
    except (RuntimeError, SafetensorError, OSError):
        raise ModelError(f"{run / FILE} does not hold the familiarity head that artifact.json describes.") from None
    network.familiarity.eval()


def split(weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of a network without its familiarity head, and those of the head alone."""
    head = {name.removeprefix(PREFIX): value for name, value in weights.items() if name.startswith(PREFIX)}
    return {name: value for name, value in weights.items() if not name.startswith(PREFIX)}, head


def joined(weights: Mapping[str, Tensor], run: Path) -> dict[str, Tensor]:
    """The weights of a run's network with those of its familiarity head, where the run has one."""
    if not (run / FILE).is_file():
        return dict(weights)
    return dict(weights) | {PREFIX + name: value for name, value in load_file(run / FILE).items()}


def _new(network: UEPNet, hidden: int) -> networks.FamiliarityHead:
    return networks.FamiliarityHead(network.encoder.channels[-1], hidden, network.layout.cell)


def _head(
    network: UEPNet,
    samples: Sequence[Sample],
    artifact: Artifact,
    rng: np.random.Generator,
    watch: Watch,
    side: float,
) -> networks.FamiliarityHead:
    familiar, strange = [], []
    small: list[Image] = []
    for sample in samples:
        image = _seen(sample.load_image(), rng, side)
        familiar.append(_features(network, image, artifact, rng))
        if len(sample.points):  # an image without people is not less familiar when it is turned
            turned = np.rot90(image, int(rng.integers(1, 4)))
            strange.append(_features(network, turned, artifact, rng))
            small.append(resized(image, float(rng.uniform(*SHRINK))))
        if len(small) == MOSAIC[0] * MOSAIC[1]:
            strange.append(_features(network, _mosaic(small, rng), artifact, rng))
            small = []
        watch()
    return _trained(_new(network, HIDDEN), torch.cat(familiar), torch.cat(strange), int(rng.integers(2**31)))


def _seen(image: Image, rng: np.random.Generator, side: float) -> Image:
    height, width = image.shape[:2]
    scale = side / (height * width) ** 0.5 * float(np.exp(rng.uniform(*np.log(WANDER))))
    return resized(image, max(scale, 2 * MULTIPLE / min(height, width)))


def _mosaic(images: Sequence[Image], rng: np.random.Generator) -> Image:
    """Images side by side, cut to one size, each upright or upside down."""
    height, width = (min(image.shape[axis] for image in images) for axis in (0, 1))
    rows, columns = MOSAIC
    parts = [np.rot90(image[:height, :width], 2 * int(rng.integers(2))) for image in images]
    lines = [np.concatenate(parts[row * columns : (row + 1) * columns], axis=1) for row in range(rows)]
    return np.concatenate(lines)


def _features(network: UEPNet, image: Image, artifact: Artifact, rng: np.random.Generator) -> Tensor:
    """Some of the deepest features of an image, [cells, channels]."""
    height, width = (max(DEEPEST_STRIDE, side // MULTIPLE * MULTIPLE) for side in image.shape[:2])
    tile = np.empty((height, width, 3), np.uint8)
    tile[:] = artifact.normalisation.padding
    part = image[:height, :width]
    tile[: part.shape[0], : part.shape[1]] = part
    mean, std = torch.tensor(artifact.normalisation.mean), torch.tensor(artifact.normalisation.std)
    with torch.inference_mode():
        deepest = network.encoder(normalise(torch.from_numpy(tile)[None], mean, std))[-1]
    vectors: Tensor = deepest[0].flatten(1).T
    chosen = rng.choice(len(vectors), min(CELLS, len(vectors)), replace=False)
    return vectors[torch.from_numpy(chosen)].clone()


def _trained(head: networks.FamiliarityHead, familiar: Tensor, strange: Tensor, seed: int) -> networks.FamiliarityHead:
    """Logistic regression with one inner layer; both kinds weigh the same."""
    vectors = torch.cat([familiar, strange])
    head.mean.copy_(vectors.mean(0)[:, None, None])
    head.std.copy_(vectors.std(0)[:, None, None] + 1e-6)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in (head.inner, head.outer):
            layer.weight.normal_(0, layer.weight[0].numel() ** -0.5, generator=generator)
            assert layer.bias is not None
            layer.bias.zero_()
    optimiser = torch.optim.AdamW(head.parameters(), RATE, weight_decay=1e-2)
    for batch in _batches(len(familiar), len(strange), generator):
        scores = head.logits(vectors[batch][:, :, None, None])[:, 0, 0]
        loss = functional.binary_cross_entropy_with_logits(scores, (batch < len(familiar)).float())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return head.eval()


def _batches(familiar: int, strange: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Positions in [familiar, strange], half of each kind."""
    for _ in range(STEPS):
        first = torch.randint(familiar, (BATCH // 2,), generator=generator)
        second = torch.randint(strange, (BATCH // 2,), generator=generator) + familiar
        yield torch.cat([first, second])
