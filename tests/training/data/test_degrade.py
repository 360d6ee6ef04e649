"""Degraded pictures keep their size and their content; the same seed gives the same copies."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.scenes import release, scene

from uepnet.cli import main
from uepnet.model.errors import DataError
from uepnet.training.data.augment import Augment
from uepnet.training.data.batches import Tiles
from uepnet.training.data.dataset import load
from uepnet.training.data.degrade import ALL, CHEAP, degrade_cheaply, video
from uepnet.training.data.degraded_copies import INDEX, make_copies, with_copies


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    return np.array(scene(np.random.default_rng(0), 30, 161, 127)[0])  # odd sides: video codecs need even ones


def closeness(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.corrcoef(left.mean(axis=2).ravel(), right.mean(axis=2).ravel())[0, 1])


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_degraded_picture_shows_the_same_scene_in_the_same_place(picture: np.ndarray, kind: str, seed: int) -> None:
    made = ALL[kind](picture, np.random.default_rng(seed))
    assert made.shape == picture.shape and made.dtype == np.uint8 and made.flags.writeable
    assert not np.array_equal(made, picture)
    assert np.array_equal(made, ALL[kind](picture, np.random.default_rng(seed)))
    in_place = closeness(made, picture)
    assert in_place > 0.6
    moved = [closeness(made, np.roll(picture, shift, (0, 1))) for shift in ((0, 8), (0, -8), (8, 0), (-8, 0))]
    assert in_place > max(moved) + 0.2


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize("frames", [1, 4])
def test_a_higher_crf_loses_more(picture: np.ndarray, codec: str, frames: int) -> None:
    loss = [
        float(np.abs(video(codec, crf, frames)(picture, np.random.default_rng(0)).astype(int) - picture).mean())
        for crf in (18, 36)
    ]
    assert loss[1] > 1.3 * loss[0]


def test_the_loop_uses_every_cheap_kind(picture: np.ndarray) -> None:
    drawn = {degrade_cheaply(picture, np.random.default_rng(seed)).tobytes() for seed in range(60)}
    assert len(drawn) > len(CHEAP)


def test_copies_are_made_once_and_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    root = release(tmp_path / "crowds", images=4)
    samples = load("shanghaitech-a", root, "train")
    for out in ("first", "second"):
        assert make_copies(samples, "shanghaitech-a", root, tmp_path / out, ["h264", "jpeg"], seed=3) == 8
    assert make_copies(samples, "shanghaitech-a", root, tmp_path / "first", ["h264", "jpeg"], seed=3) == 0
    found = with_copies(samples, "shanghaitech-a", root, tmp_path / "first")
    again = with_copies(samples, "shanghaitech-a", root, tmp_path / "second")
    for left, right in zip(found, again, strict=True):
        assert [path.read_bytes() for path in left.copies] == [path.read_bytes() for path in right.copies]
        assert left.load_image(0).shape == left.load_image().shape
        assert not np.array_equal(left.load_image(0), left.load_image(1))
    with pytest.raises(DataError, match="other settings"):
        make_copies(samples, "shanghaitech-a", root, tmp_path / "first", ["h264"], seed=3)


def test_a_share_of_the_tiles_is_cut_from_copies(tmp_path: Path) -> None:
    root = release(tmp_path / "crowds", images=4)
    samples = load("shanghaitech-a", root, "train")
    make_copies(samples, "shanghaitech-a", root, tmp_path / "copies", ["dark"], seed=0)
    copied = with_copies(samples, "shanghaitech-a", root, tmp_path / "copies")

    def dark_tiles(share: float) -> int:
        tiles = Tiles(copied, Augment(128, scale=(1, 1)), 8, (127, 127, 127), seed=0, degraded_share=share)
        return sum(float(tiles[position][0].max()) < 180 for position in range(40))

    assert dark_tiles(0.0) == 0 and dark_tiles(1.0) == 40
    assert 8 < dark_tiles(0.5) < 32


def test_training_refuses_images_without_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = release(tmp_path / "crowds", images=24)
    data = ["--dataset", "shanghaitech-a", "--root", str(root)]
    assert main(["data", "degrade", *data, "--split", "val", "--kinds", "grey", "--out", str(tmp_path / "copies")]) == 0
    assert "copies made" in capsys.readouterr().out
    assert list(json.loads((tmp_path / "copies" / INDEX).read_text())["images"]) == ["shanghaitech-a-crowds"]
    train = ["train", *data, "--intervals", "6", "--out", str(tmp_path / "run")]
    assert main([*train, "--degraded", str(tmp_path / "copies")]) == 2
    assert "holds no degraded copies of" in capsys.readouterr().err
    assert main([*train, "--degraded", str(tmp_path / "nowhere")]) == 2
    assert "it has no copies.json" in capsys.readouterr().err
    assert main([*train, "--degraded-share", "0.5"]) == 2
    assert "needs --degraded" in capsys.readouterr().err
    assert main(["data", "degrade", *data, "--kinds", "snow", "--out", str(tmp_path / "snow")]) == 2
    assert "no degradation called 'snow'" in capsys.readouterr().err
