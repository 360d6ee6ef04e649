"""A network built to the published layout counts what the run counts that its files are imported into."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from uepnet.cli import main
from uepnet.commands.shared.models import open_model
from uepnet.model.count import count_image
from uepnet.training.published_checkpoint import MEAN, PARTS

TABLE = {
    "t_max": 4.0,
    "heads": [
        {"borders": [0.00016, 0.5, 1.5], "proxies": [0, 0.2, 0.9, 2.0]},
        {"borders": [0.00016, 0.2, 0.9, 2.0], "proxies": [0, 0.1, 0.5, 1.4, 3.0]},
    ],
}


def stage(inputs: int, *outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in zip((inputs, *outputs), outputs, strict=False):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2))


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frontend_1 = stage(3, 64, 64)
        self.frontend_2 = stage(64, 128, 128)
        self.frontend_3 = stage(128, 256, 256, 256)
        self.frontend_4 = stage(256, 512, 512, 512)
        self.frontend_5 = stage(512, 512, 512, 512)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        third = self.frontend_3(self.frontend_2(self.frontend_1(x)))
        fourth = self.frontend_4(third)
        return third, fourth, self.frontend_5(fourth)


class Join(nn.Module):
    def __init__(self, skip: int) -> None:
        super().__init__()
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.conv1 = nn.Sequential(nn.Conv2d(512, 256, 3, padding=1), nn.ReLU())
        self.conv2 = nn.Sequential(
            nn.Conv2d(256 + skip, 512, 3, padding=1), nn.ReLU(), nn.Conv2d(512, 512, 3, padding=1), nn.ReLU()
        )

    def forward(self, low: Tensor, skip: Tensor) -> Tensor:
        joined: Tensor = self.conv2(torch.cat([skip, self.conv1(self.up(low))], 1))
        return joined


class Heads(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.PredBackbone1 = nn.Sequential(nn.Conv2d(512, 512, 1), nn.ReLU())
        self.PredBackbone2 = nn.Sequential(nn.Conv2d(512, 512, 1), nn.ReLU())
        self.head1 = nn.Conv2d(512, classes, 1)
        self.head2 = nn.Conv2d(512, classes + 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.head1(self.PredBackbone1(x)), self.head2(self.PredBackbone2(x))


class Published:
    """The four parts, as their files name them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.parts = dict(zip(PARTS, (Backbone(), Join(512), Join(256), Heads(4)), strict=True))

    @torch.inference_mode()
    def count(self, image: np.ndarray) -> float:
        x = torch.from_numpy(image).permute(2, 0, 1)[None] / 255 - torch.tensor(MEAN)[:, None, None]
        third, fourth, fifth = self.parts["VggBackbone"](x)
        features = self.parts["DivideUpsample1"](self.parts["DivideUpsample0"](fifth, fourth), third)
        maps = self.parts["ClsPred"](features)
        tables = [torch.tensor(head["proxies"]) for head in TABLE["heads"]]  # type: ignore[attr-defined, index]
        return float(sum(table[scores.argmax(1)].sum() for scores, table in zip(maps, tables, strict=True)) / 2)


@pytest.fixture(scope="module")
def published() -> Published:
    return Published()


@pytest.fixture(scope="module")
def files(published: Published, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ckpt")
    for name, part in published.parts.items():
        torch.save(part.state_dict(), folder / f"best_net_{name}.pth")
    (folder / "intervals.json").write_text(json.dumps(TABLE))
    return folder


def imported(checkpoint: Path, table: Path, out: Path) -> int:
    return main(["import", str(checkpoint), "--intervals", str(table), "--out", str(out)])


def test_the_run_counts_what_the_published_network_counts(
    published: Published, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(files / "best_net_ClsPred.pth", files / "intervals.json", tmp_path / "run") == 0
    assert "academic use only" in capsys.readouterr().out
    artifact, run_tiles, _ = open_model(tmp_path / "run", device="cpu")
    assert artifact.decoding == "argmax" and artifact.calibration is None
    image = np.random.default_rng(0).integers(0, 256, (64, 128, 3), dtype=np.uint8)
    expected = published.count(image)
    assert expected > 0
    assert count_image(image, artifact, run_tiles).count == pytest.approx(expected, rel=1e-5)


def test_a_folder_and_one_file_of_all_parts_are_the_same_checkpoint(
    published: Published, files: Path, tmp_path: Path
) -> None:
    table = files / "intervals.json"
    nested = {name: {f"module.{k}": v for k, v in part.state_dict().items()} for name, part in published.parts.items()}
    flat = {f"net{name}.{key}": value for name, part in nested.items() for key, value in part.items()}
    torch.save(nested, tmp_path / "nested.pth")
    torch.save({key.replace("module.", ""): value for key, value in flat.items()}, tmp_path / "flat.pth")
    for index, source in enumerate((files, tmp_path / "nested.pth", tmp_path / "flat.pth")):
        assert imported(source, table, tmp_path / str(index)) == 0
    weights = {(tmp_path / str(index) / "weights.safetensors").read_bytes() for index in range(3)}
    assert len(weights) == 1


def test_what_does_not_fit_is_one_sentence_and_writes_nothing(
    published: Published, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = files / "intervals.json", tmp_path / "run"
    (tmp_path / "few.json").write_text(json.dumps(TABLE | {"heads": TABLE["heads"][:1]}))  # type: ignore[index]
    wide = [head | {"borders": [*head["borders"], 3.5], "proxies": [*head["proxies"], 3.6]} for head in TABLE["heads"]]  # type: ignore[attr-defined]
    (tmp_path / "wide.json").write_text(json.dumps(TABLE | {"heads": wide}))
    (tmp_path / "no.json").write_text("[]")
    (tmp_path / "broken.pth").write_bytes(b"no weights")
    normed = {"VggBackbone": {"frontend_1.1.running_mean": torch.zeros(1)}}
    torch.save(normed | {part: {"x": torch.zeros(1)} for part in PARTS[1:]}, tmp_path / "normed.pth")
    torch.save({"x": torch.zeros(1)}, tmp_path / "other.pth")
    cases = [
        (files, tmp_path / "few.json", "must have the intervals of two heads"),
        (files, tmp_path / "wide.json", "heads.0.2.weight has the shape [4, 512, 1, 1], expected [5, 512, 1, 1]"),
        (files, tmp_path / "no.json", "is not a table of intervals"),
        (tmp_path / "broken.pth", table, "is not a readable checkpoint"),
        (tmp_path / "missing.pth", table, "does not exist"),
        (tmp_path / "normed.pth", table, "has batch norms"),
        (tmp_path / "other.pth", table, "encoder.features.0.weight is missing"),
        (tmp_path, table, "must hold one file"),
    ]
    for checkpoint, intervals, words in cases:
        assert imported(checkpoint, intervals, out) == 2, words
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1
        assert not out.exists()
