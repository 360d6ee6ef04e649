"""A small run with random weights, exported into its folder: it counts people everywhere, and trains in seconds."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from support.toy import HEADS
from uepnet.model.artifact import Artifact, Familiarity, Layout, Normalisation, Tiling
from uepnet.model.network import build
from uepnet.training import familiarity
from uepnet.training.export import export
from uepnet.training.parity import cut_probes


def tiny_run(run: Path, images: list[Path]) -> Path:
    run.mkdir(parents=True)
    torch.manual_seed(3)
    layout = Layout(encoder="efficientnet-lite0", width=8, classes=(5, 6))
    artifact = Artifact(
        version="start",
        layout=layout,
        normalisation=Normalisation(mean=(127, 127, 127), std=(128, 128, 128)),
        heads=HEADS,
        t_max=7.0,
        tiling=Tiling(tile=256, halo=32),
        decoding="expectation",
        familiarity=Familiarity(threshold=0.9, hidden=8, images=12),  # everything is unfamiliar to it
        training={"settings": {"kernel": "fixed:4"}},
    )
    artifact.save(run)
    network = build(layout)
    save_file(network.state_dict(), run / "weights.safetensors")
    familiarity.attach(network, artifact)
    assert network.familiarity is not None
    familiarity.save(network.familiarity, run)
    export(run, run / "model", ["fp32"], probes=cut_probes(images, 2, ((96, 64),), seed=0), unproven=True)
    return run
