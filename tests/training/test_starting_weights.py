"""Which weights a network starts from, and that they belong to the input that it is fed."""

import os
import subprocess
import sys
from http.client import IncompleteRead
from pathlib import Path

import numpy as np
import pytest
import torch
from support.scenes import release

from uepnet.model.artifact import Layout
from uepnet.model.errors import DataError
from uepnet.model.network import build
from uepnet.training.config import NORMALISATION
from uepnet.training.starting_weights import encoder_weights, initialise, vgg16_weights


def test_torchvision_weights_expect_the_normalisation_of_the_network() -> None:
    expected = vgg16_weights().transforms()
    ours = NORMALISATION["vgg16"]
    assert np.allclose(np.array(expected.mean) * 255, ours.mean, atol=1e-3)
    assert np.allclose(np.array(expected.std) * 255, ours.std, atol=1e-3)


def test_torchvision_vgg_keys_fit() -> None:
    network = build(Layout(encoder="vgg16", width=16, classes=(5,)))
    state = dict(network.encoder.state_dict())
    assert encoder_weights(network.encoder, state | {"classifier.0.weight": torch.zeros(1)}).keys() == state.keys()


def test_without_a_network_the_command_ends_in_one_sentence(tmp_path: Path) -> None:
    release(tmp_path / "crowds", images=24)
    line = [sys.executable, "-m", "uepnet", "train", "--preset", "paper", "--dataset", "shanghaitech-a"]
    line += ["--root", str(tmp_path / "crowds"), "--intervals", "6", "--out", str(tmp_path / "run")]
    unreachable = "http://127.0.0.1:9"  # the discard port: nothing listens there
    surroundings = os.environ | {"TORCH_HOME": str(tmp_path), "https_proxy": unreachable, "no_proxy": ""}
    ended = subprocess.run(line, env=surroundings, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert "cannot be downloaded" in ended.stderr and "--init" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["broken.pth", "broken.safetensors"])
def test_a_file_that_holds_no_weights_is_refused(tmp_path: Path, name: str) -> None:

    (tmp_path / name).write_bytes(b"no weights")
    with pytest.raises(DataError, match="not a readable weights file"):
        initialise(build(Layout(encoder="vgg16", width=16, classes=(5,))), str(tmp_path / name))


@pytest.mark.parametrize("content", [torch.zeros(3), {"state_dict": {"features.0.weight": torch.zeros(1)}, "epoch": 3}])
def test_a_file_that_holds_more_or_less_than_weights_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "checkpoint.pth")
    with pytest.raises(DataError, match="does not hold named weights alone"):
        initialise(build(Layout(encoder="vgg16", width=16, classes=(5,))), str(tmp_path / "checkpoint.pth"))


def test_a_download_that_is_cut_off_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object, **__: object) -> None:
        raise IncompleteRead(b"half")

    monkeypatch.setattr(type(vgg16_weights()), "get_state_dict", cut)
    with pytest.raises(DataError, match="cannot be downloaded"):
        initialise(build(Layout(encoder="vgg16", width=16, classes=(5,))), "")
