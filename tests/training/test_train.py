"""The loop learns, stops, resumes to the same bits, and refuses what cannot work."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.scenes import release, starting_weights

from uepnet.cli import main
from uepnet.commands import train as command
from uepnet.model.artifact import Artifact
from uepnet.model.errors import DataError, ImageError, ModelError, OutputError
from uepnet.training import familiarity
from uepnet.training.config import Config
from uepnet.training.data import dataset
from uepnet.training.metrics_log import StepMetrics
from uepnet.training.prepare import load_network, parts_of, repeated, samples_of
from uepnet.training.schedule import Schedule
from uepnet.training.starting_weights import BUNDLED_WEIGHTS
from uepnet.training.train import train


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    release(folder / "crowds", images=24)
    starting_weights(folder / "start.safetensors")
    return folder


def config(place: Path, **changes: object) -> Config:
    values: dict[str, object] = {
        "data": (("shanghaitech-a", str(place / "crowds")),),
        "init": str(place / "start.safetensors"),
        "width": 16,
        "intervals": 6,
        "crop": 64,
        "batch": 2,
        "steps": 6,
        "warm_up": 2,
        "threads": 1,
        "validate_every": 1000,
        "validate_images": 2,
        "checkpoint_seconds": 1e9,
    }
    return Config(**(values | changes))  # type: ignore[arg-type]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "weights.safetensors")


def assert_same_weights(left: Path, right: Path) -> None:
    first, second = weights(left), weights(right)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_short_run_learns(place: Path, tmp_path: Path) -> None:
    losses: list[float] = []
    setup = config(place, steps=40, batch=4, lr=3e-3, warm_up=5, mirror=False, scale=(1.0, 1.0), jitter=0.0)
    train(tmp_path / "run", setup, watch=lambda p: losses.append(p.values["loss"]) if p.kind == "train" else None)
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    for name in ("config.json", "artifact.json", "weights.safetensors", "checkpoint.pt", "metrics.jsonl"):
        assert (tmp_path / "run" / name).is_file()
    artifact = Artifact.load(tmp_path / "run")
    assert artifact.layout.classes == (6, 7)
    assert artifact.metrics["val_mae"] > 0


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stopped_run_resumes_to_the_same_bits(place: Path, tmp_path: Path, workers: int) -> None:
    setup = config(place, workers=workers, empty_share=0.3, encoder_rate=0.1)
    train(tmp_path / "whole", setup)
    seen: list[int] = []
    train(tmp_path / "broken", setup, watch=lambda p: seen.append(p.step), stop=lambda: len(seen) >= 3)
    assert Artifact.load(tmp_path / "broken").metrics == {"step": 3.0}  # it was never validated
    assert load_network(tmp_path / "broken", Artifact.load(tmp_path / "broken"))  # and can be exported as it is
    train(tmp_path / "broken", setup, resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "broken")


def test_the_mean_of_the_weights_is_kept_and_resumes_to_the_same_bits(place: Path, tmp_path: Path) -> None:
    setup = config(place, average=0.9)
    train(tmp_path / "whole", setup)
    seen: list[int] = []
    train(tmp_path / "broken", setup, watch=lambda p: seen.append(p.step), stop=lambda: len(seen) >= 3)
    train(tmp_path / "broken", setup, resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "broken")
    train(tmp_path / "last", config(place))
    state = torch.load(tmp_path / "whole" / "checkpoint.pt", weights_only=True)
    name = "heads.0.0.weight"
    assert torch.equal(state["network"][name], weights(tmp_path / "last")[name])  # it trains on as if there were none
    assert not torch.equal(weights(tmp_path / "whole")[name], weights(tmp_path / "last")[name])


def test_the_mean_of_a_short_run_is_of_its_steps_and_not_of_its_start(place: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", config(place, average=0.999, steps=30, lr=1e-3))
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    kept, last = weights(tmp_path / "run"), state["network"]
    for name in ("heads.0.2.bias", "ups.0.reduce.1.running_mean"):  # both start at 0
        share = float((kept[name] * last[name]).sum() / (last[name] ** 2).sum())
        assert 0.5 < share < 1, name  # with a plain mean of 0.999, about 0.02


def test_a_repeated_data_set_is_drawn_as_often(place: Path) -> None:
    def names(samples: list[dataset.Sample]) -> list[str]:
        return [sample.name for sample in samples]

    pair = ("shanghaitech-a", str(place / "crowds"))
    once = names(samples_of(config(place), "fit"))
    uneven = config(place, data=(pair, pair), repeat=(3, 1))
    assert names(repeated(parts_of(config(place), "fit"), ())) == once
    assert names(repeated(parts_of(uneven, "fit"), uneven.repeat)) == once * 4
    assert names(samples_of(uneven, "fit")) == once * 2  # what intervals are fitted to is not repeated


def test_a_killed_run_resumes_to_the_same_bits_and_cuts_its_log_back(place: Path, tmp_path: Path) -> None:
    setup = config(place, steps=30, workers=1, checkpoint_seconds=0.5)
    train(tmp_path / "whole", setup)
    run = tmp_path / "killed"
    code = "import sys; from pathlib import Path; from uepnet.training.config import Config; "
    code += "from uepnet.training.train import train; run = Path(sys.argv[1]); "
    code += "train(run, Config.read(Path(sys.argv[2])))"
    process = subprocess.Popen([sys.executable, "-c", code, str(run), str(tmp_path / "whole")], start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not (run / "checkpoint.pt").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"step": 29, "kind": "train", "loss": 1.0}\n{"step": 3')  # what a kill may leave behind
    train(run, setup, resume=True)
    assert_same_weights(tmp_path / "whole", run)
    logs = [
        [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (tmp_path / "whole", run)
    ]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"partition": "uniform-length"},
        {"partition": "uniform-number"},
        {"partition": "two-linear", "knee": 0.1},
        {"partition": "log"},
        {"proxies": "midpoint"},
        {"proxies": "median"},
        {"heads": "parallel"},
        {"heads": "single"},
        {"target": "regression"},
        {"cell": 16},
        {"cell": 32},
        {"count_loss": 0.0},
        {"optimiser": "sgd", "schedule": "plateau", "keep": "best", "crop": 0, "batch": 1},
        {"freeze": 3},
        {"fixed_norms": True},
    ],
    ids=lambda changes: "-".join(map(str, next(iter(changes.items())))),
)
def test_every_ablation_trains_and_counts(place: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    shown: list[StepMetrics] = []
    train(tmp_path / "run", config(place, steps=2, **changes), watch=shown.append)
    assert [progress.kind for progress in shown] == ["train", "train", "val"]
    assert shown[-1].values["val_mae"] >= 0
    kept = weights(tmp_path / "run")
    if changes == {"freeze": 3}:
        start = load_file(place / "start.safetensors")
        assert torch.equal(kept["encoder.stem.conv.weight"], start["stem.conv.weight"])
        assert not torch.equal(kept["encoder.stages.3.0.expand.conv.weight"], start["stages.3.0.expand.conv.weight"])
    if changes == {"fixed_norms": True}:
        seen = [value for key, value in kept.items() if key.endswith("num_batches_tracked")]
        assert seen and not any(seen)


@pytest.mark.parametrize("fixed_norms", [False, True])
def test_bfloat16_learns_nearly_what_float32_learns(place: Path, tmp_path: Path, fixed_norms: bool) -> None:
    def losses(bfloat16: bool) -> list[float]:
        seen: list[StepMetrics] = []
        settings = config(place, steps=3, seed=1, fixed_norms=fixed_norms, precision="bfloat16" if bfloat16 else "fp32")
        train(tmp_path / str(bfloat16), settings, watch=seen.append)
        return [progress.values["loss"] for progress in seen if progress.kind == "train"]

    exact, rounded = losses(False), losses(True)
    assert exact != rounded and rounded == pytest.approx(exact, rel=0.05)
    assert {value.dtype for key, value in weights(tmp_path / "True").items() if "tracked" not in key} == {torch.float32}


def test_a_run_of_ours_can_be_fine_tuned_on_other_intervals(place: Path, tmp_path: Path) -> None:
    train(tmp_path / "first", config(place, steps=2))
    train(tmp_path / "second", config(place, steps=2, intervals=8, init=str(tmp_path / "first"), lr=1e-9))
    first, second = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert torch.allclose(first["ups.0.reduce.0.weight"], second["ups.0.reduce.0.weight"], atol=1e-6)
    assert second["heads.0.2.weight"].shape[0] == 8


def test_an_encoder_that_learns_slowly_stays_nearer_to_its_start(place: Path, tmp_path: Path) -> None:
    def moved(rate: float) -> tuple[float, bool]:
        """How far a layer of the encoder went, and whether the decoder learnt."""
        run = tmp_path / str(rate)
        train(run, config(place, steps=2, seed=1, encoder_rate=rate))
        kept, start = weights(run), load_file(place / "start.safetensors")
        far = (kept["encoder.stages.3.0.expand.conv.weight"] - start["stages.3.0.expand.conv.weight"]).abs().mean()
        return float(far), bool((kept["heads.0.2.bias"] != 0).any())

    whole, tenth, none = moved(1.0), moved(0.1), moved(0.0)
    assert whole[1] and tenth[1] and none[1]
    assert none[0] == 0
    assert tenth[0] == pytest.approx(whole[0] / 10, rel=0.3)


@pytest.mark.parametrize("width", [128, 16])
def test_without_starting_weights_the_bundled_model_is_fine_tuned(place: Path, tmp_path: Path, width: int) -> None:
    train(tmp_path / "run", config(place, init="", width=width, intervals=25, steps=1, lr=1e-9, fixed_norms=True))
    bundled, _ = familiarity.split(load_file(BUNDLED_WEIGHTS))  # a new run has no familiarity head
    tuned = weights(tmp_path / "run")
    kept = [key for key in bundled if width == 128 or key.startswith("encoder.")]
    assert kept and all(torch.allclose(bundled[key].float(), tuned[key].float(), atol=1e-6) for key in kept)


def test_images_are_validated_and_counted_at_the_size_that_was_asked_for(place: Path, tmp_path: Path) -> None:
    artifact = train(tmp_path / "run", config(place, steps=1, input_scale=1.5))
    assert artifact.scale == Artifact.load(tmp_path / "run").scale == 1.5


@pytest.mark.parametrize(
    ("options", "input_scale", "scale"),
    [
        ("", 1.2, (0.8, 2.2)),
        ("--no-scale", 1.2, (1.2, 1.2)),
        ("--input-scale 1 --scale 0.5 1.5", 1.0, (0.5, 1.5)),
        ("--preset paper", 1.0, (0.3, 1.3)),
        ("--preset paper --no-scale", 1.0, (1.0, 1.0)),
    ],
)
def test_tiles_are_scaled_around_the_size_at_which_images_are_counted(
    options: str, input_scale: float, scale: tuple[float, float]
) -> None:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    asked = command._config(parser.parse_args(["--dataset", "csv", "--root", "here", *options.split()]))
    assert (asked.input_scale, asked.scale) == (input_scale, scale)


def test_the_cosine_warms_up_and_ends_at_nothing(place: Path) -> None:
    schedule = Schedule(config(place, steps=100, warm_up=10, lr=1.0))
    assert schedule.at(0) == pytest.approx(0.1)
    assert schedule.at(10) == pytest.approx(1.0)
    assert schedule.at(99) < 0.001


def test_the_plateau_divides_by_ten_when_the_loss_stagnates(place: Path) -> None:
    schedule = Schedule(config(place, schedule="plateau", warm_up=0, lr=1.0), window=2, patience=2)
    for loss in (5, 5, 4, 4, 4, 4, 4, 4):
        schedule.saw(loss)
    assert schedule.at(8) == pytest.approx(0.1)


def test_nothing_is_overwritten(place: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    with pytest.raises(DataError, match="not empty"):
        train(tmp_path / "run", config(place))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["mine.txt"]


def test_a_checkpoint_of_another_network_is_refused(place: Path, tmp_path: Path) -> None:
    train(tmp_path / "narrow", config(place, steps=1))
    train(tmp_path / "wide", config(place, steps=1, width=24))
    checkpoint = (tmp_path / "wide" / "checkpoint.pt").read_bytes()
    (tmp_path / "narrow" / "checkpoint.pt").write_bytes(checkpoint)
    with pytest.raises(ModelError, match="another network"):
        train(tmp_path / "narrow", config(place, steps=2), resume=True)
    (tmp_path / "narrow" / "checkpoint.pt").write_bytes(checkpoint[:1000])
    with pytest.raises(ModelError, match="not a readable checkpoint"):
        train(tmp_path / "narrow", config(place, steps=2), resume=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--root", "nowhere"], "does not exist"),
        (["--init", "nowhere.pth"], "do not exist"),
        (["--kernel", "wide"], "A kernel is"),
        (["--dataset", "cats"], "no data set called 'cats'"),
        (["--device", "cuda"], "no CUDA device"),
        (["--device", "tpu"], "cpu, cuda or cuda:N"),
        (["--steps", "0"], "at least 1"),
        (["--lr", "nan"], "--lr must be"),
        (["--encoder-rate", "-1"], "--encoder-rate must be"),
        (["--crop", "50"], "multiple of 32"),
        (["--scale", "2", "1"], "the lower one first"),
        (["--input-scale", "5"], "at most 4"),
        (["--freeze", "9"], "has 8 stages"),
        (["--empty", "nowhere"], "nowhere is missing"),
        (["--empty-share", "2"], "at most 1"),
        (["--average", "1"], "less than 1, not 1"),
        (["--repeat", "2", "1"], "for every data set"),
        (["--repeat", "0"], "at least 1"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_exit_2(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    if options == ["--device", "cuda"] and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    line = ["train", "--dataset", "shanghaitech-a", "--root", str(place / "crowds")]
    line += ["--init", str(place / "start.safetensors"), "--out", str(tmp_path / "run"), *options]
    assert main(line) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not list(tmp_path.glob("run/*"))  # the same --out can be used again


def test_a_run_s_folder_may_have_any_name_but_not_a_file_s(place: Path, tmp_path: Path) -> None:
    assert train(tmp_path / "my run", config(place, steps=1)).version == "my-run"
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OutputError, match="cannot be made"):
        train(tmp_path / "file", config(place))


def damage(samples: list[dataset.Sample]) -> None:
    for sample in samples:
        sample.image.write_bytes(sample.image.read_bytes()[:-200])


def test_damaged_images_are_refused_at_the_start_and_leave_nothing(tmp_path: Path, place: Path) -> None:
    root = release(tmp_path / "crowds", images=24)
    damage(dataset.load("shanghaitech-a", root, "fit"))
    with pytest.raises(DataError, match=r"^IMG_\d+\.jpg: The JPEG image is damaged or truncated\. \d+ of \d+ pictures"):
        train(tmp_path / "run", config(place, data=(("shanghaitech-a", str(root)),)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_damaged_during_training_is_one_sentence_that_names_it(
    tmp_path: Path, place: Path, workers: int
) -> None:
    root = release(tmp_path / "crowds", images=24)
    samples = dataset.load("shanghaitech-a", root, "fit")
    settings = config(place, data=(("shanghaitech-a", str(root)),), workers=workers, steps=50)
    seen: list[int] = []

    def after(metrics: StepMetrics) -> None:
        if not seen:
            damage(samples)
        seen.append(metrics.step)

    with pytest.raises(ImageError, match=r"^\S+IMG_\d+\.jpg: The JPEG image is damaged or truncated\.$"):
        train(tmp_path / "run", settings, watch=after)
    assert 0 < len(seen) < 50


def test_resuming_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert "not a training run" in capsys.readouterr().err


FAULTS = """
import resource, sys, torch
from uepnet.training.distributed import keep_memory
if sys.argv[1] == "kept":
    keep_memory()
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(20_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own way of handing memory back")
def test_large_tensors_of_the_next_step_find_their_memory_still_there() -> None:
    faults = {
        way: int(subprocess.run([sys.executable, "-c", FAULTS, way], capture_output=True, text=True, check=True).stdout)
        for way in ("kept", "returned")
    }
    assert faults["kept"] < 100 < faults["returned"]
