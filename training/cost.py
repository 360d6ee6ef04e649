"""The cost of a network: multiply-adds per pixel of its input."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from uepnet.model.artifact import MULTIPLE, Layout
from uepnet.model.network import build


def multiply_adds_per_pixel(layout: Layout) -> float:
    """Multiply-adds of all convolutions. At input scale s a pixel of the image costs s * s times as much."""
    side = 4 * MULTIPLE
    with torch.device("meta"):  # shapes only: nothing is calculated
        network, tile = build(layout).eval(), torch.zeros(1, 3, side, side)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(tile)
    return int(counter.get_total_flops()) / 2 / side**2
