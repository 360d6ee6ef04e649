from pathlib import Path

import torch
from safetensors.torch import load_file

from uepnet.training.weights_file import save_weights


def test_weights_can_be_read_by_whoever_may_read_other_files_of_a_run(tmp_path: Path) -> None:
    turned = torch.arange(6.0).reshape(2, 3).T  # not contiguous
    save_weights({"w": turned}, tmp_path / "weights.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert torch.equal(load_file(tmp_path / "weights.safetensors")["w"], turned)
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
