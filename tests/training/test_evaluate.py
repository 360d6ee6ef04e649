"""Errors, regions, ranges and ways of decoding, on generated crowds and a toy model."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file
from support.scenes import release, starting_weights
from support.toy import toy_model

from uepnet.cli import main
from uepnet.model.artifact import Artifact, Calibration
from uepnet.model.count import Count
from uepnet.model.errors import DataError
from uepnet.model.runtime import Runtime
from uepnet.model.tiling import cells_shape
from uepnet.training.calibrate import coverage_left_out, fit, fit_kinds
from uepnet.training.data import dataset
from uepnet.training.data.region import cell_shares
from uepnet.training.data.sample import Sample
from uepnet.training.data.synthetic import KINDS
from uepnet.training.decoding import DecodingRow, Way, best, compare, ways, why
from uepnet.training.evaluate import Result, evaluate, per_scene, summary
from uepnet.training.gallery import draw_worst
from uepnet.training.prepare import load_network


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    release(folder / "crowds", images=48)
    starting_weights(folder / "start.safetensors")
    toy_model(folder / "toy")
    return folder


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    folder = place / "run"
    line = f"train --dataset shanghaitech-a --root {place / 'crowds'} --init {place / 'start.safetensors'} --width 16"
    line += f" --intervals 6 --crop 64 --batch 2 --steps 2 --warm-up 1 --threads 1 --quiet --out {folder}"
    assert main(line.split()) == 0
    return folder


def test_evaluate_reports_what_the_served_path_counts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = place / "errors.csv"
    line = f"evaluate --dataset shanghaitech-a --root {place / 'crowds'} --split test --model {place / 'toy'} --json"
    assert main([*line.split(), "--quiet", "--csv", str(rows), "--worst", str(place / "worst.png")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() >= {"images", "mae", "rmse", "nae", "bias", "coverage", "range_width", "seconds_per_image"}
    samples = dataset.load("shanghaitech-a", place / "crowds", "test")
    runtime = Runtime(place / "toy", device="cpu")
    errors = [result.error for result in evaluate(samples, runtime.artifact, runtime.run_tiles)]
    assert answer["images"] == len(samples)
    assert answer["mae"] == pytest.approx(np.abs(errors).mean())
    assert answer["rmse"] == pytest.approx(np.sqrt(np.square(errors).mean()))
    with rows.open() as file:
        assert [float(row["error"]) for row in csv.DictReader(file)] == pytest.approx(errors, abs=0.01)
    with Image.open(place / "worst.png") as gallery:
        assert gallery.width > 1000


@pytest.mark.parametrize("cell", [8, 32])
def test_the_worst_pictures_show_truth_and_count_over_the_whole_frame(place: Path, tmp_path: Path, cell: int) -> None:
    toy = Artifact.load(place / "toy")
    artifact = toy.model_copy(update={"layout": toy.layout.model_copy(update={"cell": cell})})
    (sample, *_) = dataset.load("shanghaitech-a", place / "crowds", "test")
    width, height = sample.size
    counts = np.full(cells_shape(width, height, cell), 0.5, np.float32)
    count = Count(float(counts.sum()), None, counts, width, height, (), 0.0, (), cell)
    draw_worst([sample], [Result(sample.name, 3, count, count.count, 0.1)], artifact, tmp_path / "worst.png")
    with Image.open(tmp_path / "worst.png") as gallery:
        drawn = np.asarray(gallery)[30:-8, 2 * gallery.width // 3 + 8 : -8]  # the prediction, its edges aside
    pixels = drawn[(drawn != (255, 0, 0)).any(axis=2)]  # without the red rectangle around the worst region
    assert np.ptp(pixels, axis=0).max() == 0  # evenly filled
    assert 0 < len(pixels) < drawn.shape[0] * drawn.shape[1]  # and there is one


def test_a_run_is_evaluated_through_torch(place: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"evaluate --dataset shanghaitech-a --root {place / 'crowds'} --split val --model {run} --json --quiet"
    assert main(line.split()) == 0
    assert "torch on cpu" in json.loads(capsys.readouterr().out)["model"]
    assert main([*line.split(), "--device", "tpu"]) == 2
    assert "Device tpu cannot run" in capsys.readouterr().err


def test_a_missing_picture_is_reported_before_the_first_is_counted(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{place}/crowds/part_A/train_data/images/IMG_1.jpg,1,1", "gone.jpg,1,1"]
    (tmp_path / "points.csv").write_text("\n".join(["image,x,y", *rows]))
    monkeypatch.setattr("uepnet.training.evaluate.count_image", None)
    line = f"evaluate --dataset csv --root {tmp_path} --split train --model {place / 'toy'} --quiet"
    assert main(line.split()) == 2
    assert "gone.jpg is missing" in capsys.readouterr().err


def test_calibration_is_fitted_on_its_own_split_and_written(place: Path, tmp_path: Path) -> None:
    model = toy_model(tmp_path / "toy")
    root = release(tmp_path / "crowds", images=190)
    assert Artifact.load(model).calibration is None
    line = f"evaluate --dataset shanghaitech-a --root {root} --split val --model {model} --calibrate --quiet --json"
    assert main(line.split()) == 0
    fitted = Artifact.load(model).calibration
    assert fitted is not None and fitted.images == len(dataset.load("shanghaitech-a", root, "calibration"))


def test_a_range_can_be_fitted_on_all_of_data_that_the_model_never_saw(place: Path, tmp_path: Path) -> None:
    model = toy_model(tmp_path / "toy")
    line = f"evaluate --dataset shanghaitech-a --root {place / 'crowds'} --split val --model {model} --quiet --json"
    assert main([*line.split(), "--calibrate"]) == 2  # too few are held back
    assert Artifact.load(model).calibration is None
    assert main([*line.split(), "--calibrate", "train"]) == 0
    fitted = Artifact.load(model).calibration
    assert fitted is not None and fitted.images == 48


def test_a_range_is_not_fitted_to_pictures_that_the_model_was_trained_on(
    place: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = len(dataset.load("shanghaitech-a", place / "crowds", "fit"))
    line = f"evaluate --dataset shanghaitech-a --root {place / 'crowds'} --model {run} --quiet --calibrate train"
    assert main(line.split()) == 2
    assert f"was trained on {seen} of these 48 pictures" in capsys.readouterr().err
    assert Artifact.load(run).calibration is None


@pytest.mark.parametrize(
    ("command", "output", "words"),
    [
        ("evaluate", "--csv nowhere/errors.csv", "no folder"),
        ("evaluate", "--worst worst.xyz", "the name must end in"),
        ("partition", "--plot nowhere/intervals.png", "no folder"),
        ("analyse discretisation", "--plot .", "is a folder"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_at_once(
    place: Path, capsys: pytest.CaptureFixture[str], command: str, output: str, words: str
) -> None:
    line = f"{command} --dataset shanghaitech-a --root {place / 'crowds'} {output}"
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_a_range_holds_the_truth_as_often_as_it_says(noise: float) -> None:
    rng = np.random.default_rng(5)
    covered = []
    for _ in range(60):
        truths = rng.lognormal(4.5, 1.0, 160).round()
        counts = truths * rng.lognormal(0.1, noise, truths.size)  # biased, and worse for larger crowds
        fitted = fit(counts[:80], truths[:80])
        bounds = [fitted.range(count) for count in counts[80:]]
        covered += [low <= truth <= high for (low, high), truth in zip(bounds, truths[80:], strict=True)]
    assert 0.88 <= np.mean(covered) <= 0.95


def kinds(rng: np.random.Generator, images: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(counts, truths, doubts, weights) of an easy kind, four times as frequent as a difficult one."""
    difficult = np.arange(images) % 5 == 0
    truths = rng.lognormal(4.5, 1.0, images)
    counts = truths * rng.lognormal(0, np.where(difficult, 0.4, 0.05))
    doubts = np.where(difficult, 2.0, 0.4) * rng.lognormal(0, 0.2, images)
    return counts, truths, doubts, np.where(difficult, 4.0, 1.0)


def test_a_range_of_several_kinds_of_scene_holds_on_each_and_is_wider_where_the_network_doubts() -> None:
    rng = np.random.default_rng(8)
    fitted = fit_kinds(*kinds(rng, 200))
    counts, truths, doubts, weights = kinds(rng, 1000)
    bounds = [fitted.range(count, doubt) for count, doubt in zip(counts, doubts, strict=True)]
    inside = np.array([low <= truth <= high for (low, high), truth in zip(bounds, truths, strict=True)])
    assert inside[weights == 1].mean() >= 0.85 and 0.8 <= inside[weights == 4].mean() <= 0.97
    (easy_low, easy_high), (low, high) = fitted.range(100, 0.4), fitted.range(100, 2.0)
    assert 2 * (easy_high - easy_low) < high - low
    assert fitted.range(100) == fitted.range(100, 1e9)  # without a doubt, as with the largest


def test_two_data_sets_are_calibrated_together_on_all_held_back_images(place: Path, tmp_path: Path) -> None:
    model = toy_model(tmp_path / "toy", "expectation")
    release(tmp_path / "b", part="B", images=32)
    roots = {"shanghaitech-a": place / "crowds", "shanghaitech-b": tmp_path / "b"}
    line = f"evaluate --dataset {','.join(roots)} --root {','.join(map(str, roots.values()))} --model {model}"
    assert main([*line.split(), "--quiet", "--json", "--calibrate", "held-back"]) == 0
    fitted = Artifact.load(model).calibration
    splits = [(name, root, split) for name, root in roots.items() for split in ("val", "calibration")]
    assert fitted is not None and fitted.images == sum(len(dataset.load(*one)) for one in splits)


def test_a_count_lies_in_its_own_range() -> None:
    counts = np.linspace(10, 1000, 50)
    fitted = fit(counts, counts * 1.5)  # a model that always counts a third too few
    for count in (0.0, 3.0, 500.0):
        low, high = fitted.range(count)
        assert 0 <= low <= count <= high


def test_left_out_coverage_is_near_the_level() -> None:
    rng = np.random.default_rng(1)
    truths = rng.lognormal(4.5, 1.0, 100)
    assert coverage_left_out(truths * rng.lognormal(0, 0.2, 100), truths) == pytest.approx(0.9, abs=0.06)


def test_too_few_images_cannot_calibrate() -> None:
    with pytest.raises(DataError, match="at least 9"):
        fit(np.arange(8.0), np.arange(8.0))


def test_counts_outside_a_region_of_interest_are_left_out(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64), "white").save(tmp_path / "white.png")
    mask = np.zeros((64, 64), bool)
    mask[:, :20] = True
    sample = Sample("white.png", tmp_path / "white.png", lambda: np.zeros((3, 2)), region=lambda: mask, scene="s1")
    runtime = Runtime(toy_model(tmp_path / "toy"), device="cpu")
    calibration = Calibration(level=0.9, low=-0.5, high=0.5, offset=5.0, power=1.0, images=20)
    artifact = runtime.artifact.model_copy(update={"calibration": calibration})
    (result,) = evaluate([sample], artifact, runtime.run_tiles)
    assert result.counted == pytest.approx(result.count.count * 20 / 64)
    assert result.count.range is not None
    assert result.count.range.high == pytest.approx(1.5 * result.counted + 2.5)
    assert per_scene([result]) == {"s1": abs(result.error), "average": abs(result.error)}
    assert result.error == result.counted - 3


def test_cells_on_the_image_s_edge_count_their_covered_pixels() -> None:
    shares = cell_shares(np.ones((12, 20), bool), 8)
    assert shares.shape == (2, 3) and (shares == 1).all()


def test_the_summary_survives_images_without_people() -> None:
    class Nothing:
        count, range = 0.5, None

    results = [Result("a", 0, Nothing(), 0.5, 0.1)]  # type: ignore[arg-type]
    assert summary(results)["nae"] is None and summary(results)["mae"] == 0.5


def test_every_way_of_decoding_agrees_with_the_served_path(place: Path, run: Path) -> None:
    import torch

    from uepnet.training.evaluate import torch_runner

    artifact = Artifact.load(run)
    network = load_network(run, artifact)
    samples = dataset.load("shanghaitech-a", place / "crowds", "val")
    rows = compare(network, artifact, [samples], samples[:1], scales=(1.0, 0.75))
    assert [row.way for row in rows] == ways((1.0, 0.75))
    for index in (0, 3, len(rows) // 2, len(rows) - 1):
        chosen = rows[index].way.apply(artifact)
        results = evaluate(samples, chosen, torch_runner(network, chosen, torch.device("cpu")))
        assert rows[index].mae[0] == pytest.approx(float(np.mean([abs(r.error) for r in results])), rel=1e-3)


def row(
    way: Way, errors: list[float], mae: float = 10.0, empty: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> DecodingRow:
    return DecodingRow(way, (mae,), (tuple(errors),), (0.0,), empty)


PLAIN = Way("expectation", 1.0, 0.05)


def test_a_way_that_sees_people_where_nobody_is_is_not_chosen() -> None:
    good = row(Way("expectation", 1.0, 0.2), [0.1, 0.1], empty=(0.0, 0.5, 0.3))
    sharp = row(PLAIN, [0.08, 0.08], empty=(4.0, 9.0, 5.0))
    mirrored = row(Way("expectation", 1.0, 0.2, mirror=True), [0.099, 0.099], empty=(0.0, 0.5, 0.3))
    assert best([good, sharp, mirrored]) is good


def test_one_huge_crowd_does_not_decide_how_everything_is_counted() -> None:
    helps_the_huge = row(Way("expectation", 1.2), [0.2, 0.2], mae=90)
    helps_the_rest = row(Way("expectation", 0.9), [0.12, 0.12], mae=95)
    assert best([helps_the_huge, helps_the_rest]) is helps_the_rest


def test_of_ways_that_the_images_cannot_tell_apart_the_plainest_is_taken() -> None:
    plain = row(PLAIN, [0.10, 0.12, 0.08, 0.11])
    for way in (Way("expectation", 1.4, 0.05), Way("expectation", 1.0, 0.05, mirror=True), Way("argmax")):
        luckier = row(way, [0.04, 0.14, 0.05, 0.13])  # better in the mean, by no more than chance
        better = row(way, [0.09, 0.11, 0.07, 0.10])  # by as little, but on every image
        trifle = row(way, [0.098, 0.118, 0.078, 0.108])  # on every image, but who would care
        assert best([luckier, plain]) is plain
        assert best([trifle, plain]) is plain
        assert best([better, plain]) is better


def test_the_choice_of_a_decoding_is_explained() -> None:
    plain, luckier = row(PLAIN, [0.10, 0.12, 0.08, 0.11]), row(Way("argmax"), [0.04, 0.14, 0.05, 0.13])
    better, seeing = row(Way("argmax"), [0.09, 0.11, 0.07, 0.10]), row(PLAIN, [0.01] * 4, empty=(4.0, 9.0, 5.0))
    assert why(better, [better, plain]) == "argmax x1 has the lowest scaled error of all 2 decodings."
    told = why(plain, [luckier, plain, seeing])
    assert told.startswith("argmax x1 has the lowest scaled error of the 2 of 3 decodings that count nobody")
    assert "T 1 floor 0.05 x1 has 13.9% more, which is negligible or may be chance" in told
    assert why(seeing, [seeing]).startswith("No decoding counts nobody")


def test_one_image_tells_nothing() -> None:
    plain, odd = row(PLAIN, [2.0]), row(Way("argmax"), [1.0])
    assert best([odd, plain]) is plain


def test_the_model_s_own_size_is_kept_unless_another_is_better() -> None:
    usual = row(Way("expectation", 1.0, 0.05, scale=1.2), [0.10, 0.12, 0.08])
    larger = row(Way("expectation", 1.0, 0.05, scale=1.4), [0.08, 0.13, 0.08])
    assert best([larger, usual], own=1.2) is usual
    assert best([larger, usual], own=1.4) is larger


def test_the_best_way_is_written_into_the_run(place: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"analyse decoding --dataset shanghaitech-a --root {place / 'crowds'} --model {run} --write --json"
    assert main(line.split()) == 0
    answer = json.loads(capsys.readouterr().out)
    chosen = answer["chosen"]["way"]
    assert "has the lowest scaled error of" in answer["reason"]
    artifact = Artifact.load(run)
    assert artifact.decoding == chosen["decoding"] and artifact.mirror == chosen["mirror"]


def test_the_mirror_is_not_tried_where_time_rules_it_out(
    place: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"analyse decoding --dataset shanghaitech-a --root {place / 'crowds'} --model {run} --json"
    assert main(line.split()) == 0
    every = json.loads(capsys.readouterr().out)["rows"]
    assert main([*line.split(), "--no-mirror"]) == 0
    plain = json.loads(capsys.readouterr().out)["rows"]
    assert plain == [row for row in every if not row["way"]["mirror"]]
    assert len(plain) == len(every) / 2


def test_no_way_is_written_for_a_run_that_sees_people_everywhere(
    place: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind, nobody = tmp_path / "blind", tmp_path / "nobody"
    shutil.copytree(run, blind)
    weights = load_file(blind / "weights.safetensors")
    for head in (0, 1):
        weights[f"heads.{head}.2.bias"][0] = -100  # never the background
    save_file(weights, blind / "weights.safetensors")
    nobody.mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (128, 96), "grey").save(nobody / name)
    before = Artifact.load(blind)
    line = (
        f"analyse decoding --dataset shanghaitech-a --root {place / 'crowds'} --model {blind} --empty {nobody} --write"
    )
    assert main(line.split()) == 1
    told = capsys.readouterr()
    assert "chosen" not in told.out and "too many" in told.out
    assert "in images without people, so none is chosen" in told.err
    assert Artifact.load(blind) == before
    assert main([*line.split(), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fit_for_service"] is False


@pytest.mark.parametrize("what", ["discretisation", "intervals", "contributions"])
def test_analyses_answer_with_numbers_and_a_picture(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    line = f"analyse {what} --dataset shanghaitech-a --root {place / 'crowds'} --split test --model {place / 'toy'}"
    line += f" --intervals 8 --knee 0.2 --plot {tmp_path / 'plot.png'} --json"
    assert main(line.split()) == 0
    answer = json.loads(capsys.readouterr().out)
    with Image.open(tmp_path / "plot.png") as plot:
        assert plot.width > 800
    if what == "discretisation":
        table = answer["table"]
        assert set(table) == {"uep", "uniform-length", "uniform-number", "two-linear", "log", "s-dcnet", "liu"}
        assert table["uep"]["mean"] < table["uniform-length"]["midpoint"]
    if what == "contributions":
        assert sum(answer["shares"]) == pytest.approx(1)
        assert answer["background"] == answer["shares"][0]


def test_partition_prints_both_heads(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"partition --dataset shanghaitech-a --root {place / 'crowds'} --intervals 10 --json"
    assert main([*line.split(), "--plot", str(tmp_path / "plot.png")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["intervals"] == 10 and answer["t_max"] > 0
    assert [len(head["borders"]) for head in answer["heads"]] == [9, 10]
    assert answer["heads"][1]["borders"][1:] == answer["heads"][0]["proxies"][1:]
    for head in answer["heads"]:
        assert len(head["samples"]) == len(head["proxies"]) == len(head["n_l"]) + 1
    assert main(line.removesuffix(" --json").split()) == 0
    assert "head 1: 11 classes" in capsys.readouterr().out


def test_the_report_covers_errors_ranges_empty_scenes_and_sizes(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index in range(4):
        Image.new("RGB", (64, 48), "black").save(tmp_path / f"{index}.png")
    line = f"analyse report --dataset shanghaitech-a --root {place / 'crowds'} --split test --model {place / 'toy'}"
    assert main([*line.split(), "--empty", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["shanghaitech-a"]["images"] == 12
    assert answer["empty"] == {"images": 2, "median": 0, "ninety_per_cent": 0, "mean": 0, "most": 0}
    # The toy counts light per cell: four times the cells, four times the count.
    assert answer["sizes"]["mean_change_at_2"] == pytest.approx(3, abs=0.2)
    assert answer["drawn"]["images"] == 10 * len(KINDS)
