import copy

import pytest
import torch

from uepnet.model.artifact import Layout
from uepnet.model.network import Normed, build


def count(module: torch.nn.Module) -> float:
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6


def test_the_paper_s_network_has_the_published_size() -> None:
    network = build(Layout(encoder="vgg16", width=512, classes=(25, 26)))
    assert count(network.encoder) == pytest.approx(14.71, abs=0.01)
    assert count(network.ups) == pytest.approx(12.98, abs=0.01)
    assert count(network.heads) == pytest.approx(0.55, abs=0.01)


def test_the_light_network_has_a_few_million_parameters() -> None:
    assert 3 < count(build(Layout(encoder="efficientnet-lite0", width=128, classes=(25, 26)))) < 5


@pytest.mark.parametrize("decoder", ["full", "lean"])
@pytest.mark.parametrize("encoder", ["vgg16", "efficientnet-lite0", "efficientnet-lite2"])
@pytest.mark.parametrize("cell", [8, 16, 32])
def test_logits_come_out_one_a_cell(encoder: str, decoder: str, cell: int) -> None:
    layout = Layout(encoder=encoder, decoder=decoder, width=16, classes=(5, 6), cell=cell)  # type: ignore[arg-type]
    first, second = build(layout).eval()(torch.zeros(2, 3, 64, 96))
    assert first.shape == (2, 5, 64 // cell, 96 // cell)
    assert second.shape == (2, 6, 64 // cell, 96 // cell)


def test_the_paper_s_layers_start_small_and_unbiased() -> None:
    network = build(Layout(encoder="vgg16", width=64, classes=(25, 26)))
    weights = network.ups[0].reduce[0].weight
    assert weights.std().item() == pytest.approx(0.01, rel=0.05)
    assert network.heads[0][0].bias.abs().max() == 0


def test_a_norm_that_keeps_its_statistics_is_folded_without_changing_anything() -> None:
    torch.manual_seed(0)
    folded = Normed(torch.nn.Conv2d(4, 6, 3, padding=1, bias=False), torch.nn.BatchNorm2d(6), torch.nn.ReLU6()).eval()
    for part in (folded[1].running_mean, folded[1].running_var, folded[1].weight, folded[1].bias):
        part.data.uniform_(0.5, 2.0)
    plain = torch.nn.Sequential(*(copy.deepcopy(layer) for layer in folded)).eval()
    image = torch.randn(2, 4, 8, 8)
    for network in (folded, plain):
        network(image).square().sum().backward()
    assert torch.allclose(folded(image), plain(image), atol=1e-5)
    for ours, theirs in zip(folded.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-3)


def test_a_norm_that_learns_sees_its_batch() -> None:
    layer = Normed(torch.nn.Conv2d(3, 5, 1, bias=False), torch.nn.BatchNorm2d(5)).train()
    values = layer(torch.randn(4, 3, 6, 6))
    assert torch.allclose(values.mean((0, 2, 3)), torch.zeros(5), atol=1e-5)
    assert layer[1].num_batches_tracked == 1


def test_early_stages_can_be_named() -> None:
    for encoder in ("vgg16", "efficientnet-lite0"):
        network = build(Layout(encoder=encoder, width=16, classes=(5,)))  # type: ignore[arg-type]
        assert network.encoder.early(0) == []
        assert len(network.encoder.early(3)) >= 3


@pytest.mark.parametrize(
    ("member", "channels", "blocks", "parameters"),
    [
        (0, (40, 112, 320), (1, 2, 2, 3, 3, 4, 1), 4.65),
        (1, (40, 112, 320), (1, 3, 3, 4, 4, 5, 1), 5.42),
        (2, (48, 120, 352), (1, 3, 3, 4, 4, 5, 1), 6.09),
    ],
)
def test_the_family_has_the_published_sizes(
    member: int, channels: tuple[int, ...], blocks: tuple[int, ...], parameters: float
) -> None:
    layout = Layout(encoder=f"efficientnet-lite{member}", width=16, classes=(5,))  # type: ignore[arg-type]
    encoder = build(layout).encoder
    assert encoder.channels == channels
    assert tuple(len(stage) for stage in encoder.stages) == blocks
    # The published number has the last 1x1 layer to 1280 channels, its norm and the classifier of 1000 classes.
    last = channels[-1] * 1280 + 2 * 1280 + 1281 * 1000
    assert count(encoder) + last / 1e6 == pytest.approx(parameters, abs=0.02)
