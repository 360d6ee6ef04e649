"""Fine-tuning decides by held-back pictures, keeps the better model, and leaves a run that serves, or nothing."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from support import releases
from support.scenes import scene
from support.tiny_run import tiny_run

from uepnet.cli import main
from uepnet.model.artifact import Artifact, Calibration
from uepnet.model.errors import DataError
from uepnet.model.runtime import Runtime
from uepnet.training import run_folder
from uepnet.training.config import Config
from uepnet.training.count_factor import corrected, factor_of, rescaled_heads
from uepnet.training.data.dataset import Sample, load
from uepnet.training.data.seen import digests
from uepnet.training.evaluate import Result, evaluate, torch_runner
from uepnet.training.finetune import Start, _best_trial, _Counter, _HeldBack, finetune, unseen
from uepnet.training.finetune_recipe import faster, recipe, scale_range, usual_steps
from uepnet.training.finetune_run import new_run, start_from, write_run
from uepnet.training.folds import Mean
from uepnet.training.mixed_weights import State, blend, mean_weights
from uepnet.training.pace import Pace, WorkLeft
from uepnet.training.prepare import load_network
from uepnet.training.report_html import report
from uepnet.training.verdict import Verdict

PICTURES = 12


def camera(root: Path, pictures: int = PICTURES) -> Path:
    """Drawn scenes and a table of their points."""
    rng = np.random.default_rng(5)
    (root / "images").mkdir(parents=True)
    rows = ["image,x,y"]
    for number in range(pictures):
        image, points = scene(rng, int(rng.integers(2, 20)), 128, 96)
        image.save(root / "images" / f"{number}.png")
        rows += [f"{number}.png,{x - 0.5:.1f},{y - 0.5:.1f}" for x, y in points]
    (root / "points.csv").write_text("\n".join(rows))
    return root


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """A small run with random weights, exported into its folder: it counts people everywhere."""
    place = tmp_path_factory.mktemp("start")
    data = camera(place / "data")
    return start_from(tiny_run(place / "run", [sample.image for sample in load("csv", data)]))


@pytest.fixture(scope="module")
def samples(start: Start) -> list[Sample]:
    return load("csv", start.model.parents[1] / "data")


def settings(start: Start, **changes: object) -> Config:
    chosen: dict[str, object] = {"crop": 64, "lr": 3e-3, "threads": 1}
    return recipe(start.artifact, (("csv", "camera"),), **(chosen | changes))


@pytest.fixture(scope="module")
def better(start: Start, samples: list[Sample]) -> Verdict:
    return finetune(start, samples, settings(start), Pace(1.0), steps=8)


def test_a_model_that_learns_is_kept_with_a_range(better: Verdict, start: Start, samples: list[Sample]) -> None:
    assert better.kept == "new"
    answer = better.as_json()
    assert isinstance(answer["before"], dict) and isinstance(answer["after"], dict)
    assert answer["after"]["mae"] < answer["before"]["mae"]
    assert answer["after"]["mae_low"] <= answer["after"]["mae"] <= answer["after"]["mae_high"]
    assert better.empty[1] <= better.empty[0]
    assert (better.config.steps, better.config.scale) == (8, scale_range(better.before))  # what was done is recorded
    assert better.config.precision in ("fp32", "bfloat16")  # whichever was measured to be quicker
    assert [result.name for result in better.after] == [sample.name for sample in samples]
    assert better.artifact.calibration is not None and better.artifact.calibration.images == PICTURES
    for new, old in zip(better.artifact.heads, start.artifact.heads, strict=True):
        assert new.proxies == pytest.approx([better.factor * proxy for proxy in old.proxies])


def test_norms_and_early_stages_stay_as_they_were(better: Verdict, start: Start) -> None:
    for name, value in start.weights.items():
        if "running_" in name or "stages.0." in name:
            assert torch.equal(better.weights[name].to(value.dtype), value), name


def test_the_run_serves_the_new_model(better: Verdict, start: Start, samples: list[Sample], tmp_path: Path) -> None:
    with new_run(tmp_path / "gate") as folder:
        artifact = write_run(folder, "gate", start, better, samples, ["fp32"])
    run = tmp_path / "gate"
    assert (artifact.version, artifact.training["started_from"]) == ("gate", "uepnet start")
    assert artifact.training["pictures"] == digests(sample.image for sample in samples)
    assert json.loads((run / "verdict.json").read_text()) == json.loads(json.dumps(better.as_json()))
    assert Config.read(run).data == (("csv", "camera"),)
    served = Runtime(run / "model", device="cpu", precision="fp32", threads=1)
    assert served.artifact.calibration == better.artifact.calibration
    network = load_network(run, artifact)
    expected = evaluate(samples[:2], artifact, torch_runner(network, artifact, torch.device("cpu")))
    for result, wanted in zip(evaluate(samples[:2], served.artifact, served.run_tiles), expected, strict=True):
        assert result.counted == pytest.approx(wanted.counted, rel=1e-3)
        assert result.count.range is not None
    again = start_from(run)  # the next round starts from it
    assert again.artifact.version == "gate" and again.weights.keys() == start.weights.keys()
    assert unseen(again.artifact, samples) == (list(range(PICTURES)), PICTURES)  # it knows all of them
    assert all(result.count.unfamiliar for result in better.before)
    counts = [result.count for result in evaluate(samples, served.artifact, served.run_tiles)]
    assert all(count.familiarity is not None and not count.unfamiliar for count in counts)  # its own camera


def test_a_model_that_cannot_become_better_is_not_replaced(
    start: Start, samples: list[Sample], better: Verdict, tmp_path: Path
) -> None:
    """The labels are as many as the old model counts."""
    people = {result.name: round(result.counted) for result in better.before}
    right = [replace(one, read_points=partial(np.full, (people[one.name], 2), 9.0)) for one in samples]
    verdict = finetune(start, right, settings(start, lr=1e-12), Pace(1.0), steps=1)
    assert verdict.kept == "old"
    with new_run(tmp_path / "gate") as folder:
        write_run(folder, "gate", start, verdict, samples, ["fp32"])
    model = tmp_path / "gate" / "model"
    assert (model / "model.fp32.onnx").read_bytes() == (start.model / "model.fp32.onnx").read_bytes()
    kept = Artifact.load(model)
    assert kept.version == "start"
    assert kept.calibration is not None and start.artifact.calibration is None


def test_the_report_needs_nothing_from_outside(better: Verdict, samples: list[Sample]) -> None:
    page = report(better, better.artifact, samples)
    assert "The new model is better and is kept" in page
    assert page.count("<circle") == 3 * PICTURES  # before, after, and in the chart of ranges
    assert page.count('<img alt="" src="data:image/jpeg;base64,') == 2 * 8
    assert "http" not in page and 'src="/' not in page and "<script" not in page


def test_the_mean_of_copies_and_the_way_back_to_the_old_weights(start: Start) -> None:
    old = {"w": torch.zeros(3), "n": torch.tensor(4)}
    copies = [{"w": torch.full((3,), float(value)), "n": torch.tensor(4)} for value in (1, 3)]
    mean = mean_weights(copies)
    assert mean["w"].tolist() == [2, 2, 2] and mean["n"] == 4 and mean["n"].dtype == torch.int64
    assert blend(old, mean, 0.5)["w"].tolist() == [1, 1, 1]
    assert blend(old, mean, 1.0) is mean


def test_a_factor_is_fitted_without_the_pictures_that_it_corrects(better: Verdict) -> None:
    results = [replace(better.after[0], truth=truth, counted=10.0) for truth in (20, 20, 12, 12)]
    assert factor_of(results) == pytest.approx(1.5)
    assert factor_of(results[2:]) == pytest.approx(1.2)
    assert [result.counted for result in corrected(results, [2, 2])] == pytest.approx([12, 12, 15, 15])
    assert factor_of([replace(results[0], truth=0)]) == 1.0


class CountsAs:
    """Stands in for the network: whatever the weights, the pictures get these counts."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.found = {result.name: result for result in results}

    def results(self, samples: Sequence[Sample], weights: State, text: str) -> list[Result]:
        return [self.found[sample.name] for sample in samples]

    def empty(self, weights: State) -> float:
        return 0.1


@pytest.mark.parametrize(
    ("counts", "factor"),
    [
        ((11, 9, 10, 11, 9, 10), 1.0),
        ((8, 8, 8, 8, 8, 8), 1.25),
        ((7, 7, 7, 12, 12, 12), 1.0),  # what fits one half makes the other worse
    ],
)
def test_a_factor_is_used_where_it_fits_pictures_that_it_was_not_fitted_to(
    start: Start, samples: list[Sample], better: Verdict, counts: Sequence[float], factor: float
) -> None:
    chosen = samples[: len(counts)]
    pairs = zip(better.after, counts, strict=False)
    after = [replace(result, truth=10, counted=float(count)) for result, count in pairs]
    before = [replace(result, counted=30.0) for result in after]
    held = _HeldBack([chosen[:3], chosen[3:]], known=0, before=before, empty=0.1)
    trial = _best_trial(start, [start.weights, start.weights], held, cast(_Counter, CountsAs(after)))
    assert (trial.strength, trial.factor) == (1.0, pytest.approx(factor))
    assert [result.counted for result in trial.results] == pytest.approx([factor * count for count in counts])


def test_fewer_pictures_need_fewer_steps_and_fewer_steps_are_larger() -> None:
    assert [usual_steps(pictures) for pictures in (20, 60, 200)] == [140, 199, 315]
    assert [faster(steps) for steps in (10, 160, 200, 5000)] == [2.0, 1.25, 1.0, 0.67]


def test_rescaled_heads_are_valid_and_count_so_many_times_as_much(start: Start) -> None:
    for factor in (0.67, 1.0, 1.5):
        made = rescaled_heads(start.artifact, factor)
        assert made.heads[1].proxies == pytest.approx([factor * proxy for proxy in start.artifact.heads[1].proxies])
        assert made.t_max == pytest.approx(factor * start.artifact.t_max)


def test_tiles_are_made_at_the_scales_at_which_the_model_counts(better: Verdict, start: Start) -> None:
    assert scale_range(better.before) == (0.8 * start.artifact.scale, 1.25 * start.artifact.scale)


def knowing_start(start: Start, known: Sequence[Sample]) -> Start:
    """The model, as if it had been trained on these pictures, with a range."""
    range_ = Calibration(level=0.9, low=-7.0, high=7.0, offset=5.0, power=0.5, images=40)
    training = start.artifact.training | {"pictures": digests(sample.image for sample in known)}
    artifact = start.artifact.model_copy(update={"training": training, "calibration": range_})
    return replace(start, artifact=artifact)


def test_a_model_is_measured_with_pictures_that_it_was_not_trained_on(start: Start, samples: list[Sample]) -> None:
    known = knowing_start(start, [samples[1], samples[4]])
    verdict = finetune(known, samples, settings(known), Pace(1.0), steps=1)
    chosen = [sample.name for index, sample in enumerate(samples) if index not in (1, 4)]
    assert [result.name for result in verdict.before] == [result.name for result in verdict.after] == chosen
    assert [sample.name for sample in verdict.samples] == chosen
    assert verdict.known == 0 and verdict.artifact.calibration != known.artifact.calibration


def test_where_it_knows_nearly_all_its_range_stays_and_the_verdict_says_why(
    start: Start, samples: list[Sample]
) -> None:
    known = knowing_start(start, samples[3:])
    verdict = finetune(known, samples, settings(known), Pace(1.0), steps=1)
    assert len(verdict.before) == PICTURES and verdict.as_json()["known"] == PICTURES - 3
    assert verdict.artifact.calibration == known.artifact.calibration
    page = report(verdict, verdict.artifact, samples)
    assert "The old model was trained on 9 of the pictures" in page


def test_the_difference_of_the_errors_is_said_in_words(better: Verdict) -> None:
    worse = replace(better, gain=Mean(-0.5, 0.1))
    assert worse.in_words == "The error in people is 0.50 larger than before (90 % bounds: 0.66 larger to 0.34 larger)."
    assert (
        "0.50 smaller than before (90 % bounds: 0.32 larger to 1.32 smaller)"
        in replace(better, gain=Mean(0.5, 0.5)).in_words
    )


def test_the_report_shows_each_picture_once_though_two_cameras_use_the_same_names(
    better: Verdict, samples: list[Sample]
) -> None:
    names = [f"{index % 6}.png" for index in range(PICTURES)]  # two cameras
    twins = [replace(sample, name=name) for sample, name in zip(samples, names, strict=True)]
    results = [replace(result, name=name) for result, name in zip(better.after, names, strict=True)]
    both = replace(better, samples=twins, after=results, before=results)
    pictures = re.findall(r"data:image/jpeg;base64,[^\"]+", report(both, both.artifact, twins))
    assert len(set(pictures[::2])) == 8  # each beside its heat map


def test_too_few_pictures_are_refused(start: Start, samples: list[Sample]) -> None:
    with pytest.raises(DataError, match="at least 10 labelled pictures, not 9"):
        finetune(start, samples[:9], settings(start), Pace(1.0))


def test_pictures_without_any_label_are_refused(start: Start, samples: list[Sample]) -> None:
    empty = [replace(one, read_points=partial(np.zeros, (0, 2))) for one in samples]
    with pytest.raises(DataError, match="None of the 12 pictures has a person marked"):
        finetune(start, empty, settings(start), Pace(1.0))


def test_the_time_decides_on_steps_and_pictures() -> None:
    moments: list[WorkLeft] = []
    pace = Pace(10.0, moments.append, cost={"picture": 1.0, "step": 2.0})
    pace.say("measuring")
    assert 590 < moments[-1].seconds_left <= 600  # nothing is planned yet
    assert pace.pictures(1000, 3, 20, 120) == 60  # 30 % of ten minutes, three times a second each
    assert pace.pictures(15, 3, 20, 120) == 15
    assert pace.steps(100, 4, 12) in (65, 66)  # all but the export's share, over four trainings of two-second steps
    assert pace.steps(1000, 400, 12) == 12
    pace.plan("step", 2)
    pace.did("step", 2.0, "training")
    assert moments[-1].text == "training" and moments[-1].seconds_left == pytest.approx(2 + 0.12 * 600)


# The command


def test_the_command_leaves_a_run_and_prints_the_contract_s_keys(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs" / "gate"
    root = start.model.parents[1] / "data"
    arguments = ["--dataset", "csv", "--root", str(root), "--init", str(start.model.parent), "--out", str(out)]
    assert main(["finetune", *arguments, "--steps", "1", "--minutes", "1", "--threads", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"before", "after", "kept"} <= set(answer)
    assert answer["kept"] in ("new", "old")
    assert {path.name for path in out.iterdir()} == {
        "config.json", "artifact.json", "weights.safetensors", "metrics.jsonl", "verdict.json", "report.html", "model",
        "familiarity.safetensors",
    }  # fmt: skip
    assert main(["count", str(root / "images" / "1.png"), "--model", str(out), "--json"]) == 0
    (counted,) = json.loads(capsys.readouterr().out)
    assert counted["range"] is not None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--minutes", "0"], "--minutes is from 1 to 600"),
        (["--precision", "fp8"], "--precision takes fp32, fp16, bf16, int8"),
        (["--steps", "-1"], "must not be negative"),
        (["--init", "nowhere"], "nowhere is not a training run"),
        (["--out", "full"], "full exists and is not empty"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    releases.table(tmp_path / "camera", images=12)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main(["finetune", "--dataset", "csv", "--root", "camera", "--out", "run", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_broken_labels_are_refused_as_the_check_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    releases.table(tmp_path / "camera", images=12)
    (tmp_path / "camera" / "images" / "3.png").unlink()
    assert main(["finetune", "--dataset", "csv", "--root", str(tmp_path / "camera"), "--out", str(tmp_path / "r")]) == 2
    assert "3.png is missing" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_run(tmp_path / "runs" / "run") as folder:
        (folder / "weights.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_second_interrupt_while_it_cleans_up_leaves_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def interrupted_at_first(path: Path, ignore_errors: bool) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        for file in path.iterdir():
            file.unlink()
        path.rmdir()

    monkeypatch.setattr("uepnet.training.finetune_run.shutil.rmtree", interrupted_at_first)
    with pytest.raises(KeyboardInterrupt), new_run(tmp_path / "run") as folder:
        (folder / "weights.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt
    assert len(calls) == 2 and list(tmp_path.iterdir()) == []


def test_two_fine_tunings_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "PATIENCE_SECONDS", 0.1)
    with new_run(tmp_path / "run") as folder:
        (folder / "mine").touch()
        with pytest.raises(DataError, match="being trained by another process"), new_run(tmp_path / "run"):
            pass
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "mine"]
