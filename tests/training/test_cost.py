import pytest

from uepnet.model.artifact import Layout
from uepnet.training.cost import multiply_adds_per_pixel


def cost(**changes: object) -> float:
    values = {"encoder": "efficientnet-lite0", "width": 128, "classes": (25, 26)}
    return multiply_adds_per_pixel(Layout(**(values | changes)))  # type: ignore[arg-type]


def test_the_paper_network_costs_what_its_layers_say() -> None:
    """VGG-16 costs 15.3 G multiply-adds at 224x224; the decoder's layers are counted by hand."""
    encoder = 15.35e9 / 224**2
    at_16 = 512 * 256 * 9 + 768 * 512 * 9 + 512 * 512 * 9
    at_8 = 512 * 256 * 9 + 512 * 512 * 9 + 512 * 512 * 9
    heads = 2 * 512 * 512 + 512 * (25 + 26)
    expected = encoder + at_16 / 256 + (at_8 + heads) / 64
    assert cost(encoder="vgg16", width=512) == pytest.approx(expected, rel=0.005)


def test_the_lean_decoder_costs_less_than_a_quarter_of_the_full_one() -> None:
    """EfficientNet-Lite0 without its last 1x1 layer and classifier: 7.3 k multiply-adds a pixel."""
    full, lean = cost(), cost(decoder="lean")
    assert full == pytest.approx(15_300, rel=0.01)
    full_decoder = (320 * 64 * 9 + 176 * 128 * 9 + 128 * 128 * 9) / 256
    full_decoder += (128 * 64 * 9 + 104 * 128 * 9 + 128 * 128 * 9 + 2 * 128 * 128 + 128 * 51) / 64
    lean_decoder = 320 * 128 / 1024 + (112 * 128 + 2 * (25 * 128 + 128 * 128) + 128 * 128) / 256
    lean_decoder += (40 * 128 + 2 * (25 * 128 + 128 * 128) + 2 * 128 * 128 + 128 * 51) / 64
    assert full - lean == pytest.approx(full_decoder - lean_decoder, rel=1e-6)
    assert lean_decoder < full_decoder / 4


def test_the_encoders_of_the_family_cost_more_and_more() -> None:
    costs = [cost(encoder=f"efficientnet-lite{member}", decoder="lean") for member in (0, 1, 2)]
    assert costs == sorted(costs)
    assert costs[2] < 15_300  # the largest with the lean decoder costs less than the smallest with the full one
