"""A table of the paper is trained, stopped, resumed and written, with a budget of a few steps."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.scenes import release, starting_weights

from uepnet.cli import build_parser, main
from uepnet.commands import reproduce as command
from uepnet.model.errors import DataError
from uepnet.training.config import Config
from uepnet.training.metrics_log import StepMetrics
from uepnet.training.paper_tables import TABLES, TableRow
from uepnet.training.reproduce import RowResult, finished_rows, reproduce_row, row_config, run_folder
from uepnet.training.reproduce_report import by_row, compared, markdown, noise, plot

BUDGET = {"steps": 3, "batch": 1, "crop": 64, "width": 16, "intervals": 6, "threads": 1, "seed": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    release(folder / "crowds", images=24, part="B")
    starting_weights(folder / "start.safetensors")
    return folder


def line(place: Path, out: Path, *options: str) -> list[str]:
    fixed = ["--steps", "2", "--batch", "1", "--crop", "64", "--width", "16", "--intervals", "6", "--threads", "1"]
    sources = ["--root", str(place / "crowds"), "--init", str(place / "start.safetensors"), "--out", str(out)]
    return ["reproduce", "multi-scale", *sources, *fixed, *options]


def test_a_table_is_trained_measured_and_written_beside_the_papers_figures(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(line(place, out, "--json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in answer["rows"]] == [row.name for row in TABLES["multi-scale"]]
    for row in answer["rows"]:
        assert row["mae"] > 0 and row["images"] > 0 and row["part"] == "b" and len(row["seeds"]) == 1
    assert answer["rows"][0]["paper"] == {"mae": 13.57, "rmse": 22.64}
    assert answer["same_order"]["pairs"] == 28 and not answer["missing"]
    assert json.loads((out / "multi-scale.json").read_text()) == answer
    table = (out / "multi-scale.md").read_text()
    assert "2 steps of 1 tiles of 64 pixels per row" in table and "| MSE | B |" in table and "13.57" in table
    with Image.open(out / "multi-scale.png") as picture:
        assert picture.width > 1000
    # Everything is done: the same command trains nothing again.
    written = {path: path.stat().st_mtime_ns for path in out.rglob("weights.safetensors")}
    assert len(written) == 8
    assert main(line(place, out, "--json")) == 0
    assert json.loads(capsys.readouterr().out) == answer
    assert {path: path.stat().st_mtime_ns for path in written} == written
    # A second seed of one row is added to the table; another budget is refused before anything is trained.
    assert main(line(place, out, "--json", "--rows", "UEP", "--seed", "1")) == 0
    seeds = {row["row"]: [run["seed"] for run in row["seeds"]] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert seeds == {row.name: [0, 1] if row.name == "UEP" else [0] for row in TABLES["multi-scale"]}
    assert main(line(place, out, "--steps", "3", "--seed", "2")) == 2
    assert "was started with other settings (steps, validate_every)" in capsys.readouterr().err
    assert len(list(out.rglob("seed-*"))) == 9
    assert main(line(place, out, "--rows", "UPE")) == 2
    assert "has no row 'UPE': choose one of MSE, MSE-MS" in capsys.readouterr().err


def test_a_row_that_was_stopped_goes_on(place: Path, tmp_path: Path) -> None:
    row = TableRow("MCP", {"proxies": "mean"}, {"b": (7.64, 13.18)})
    budget = BUDGET | {"init": str(place / "start.safetensors")}
    root = str(place / "crowds")
    config = row_config(row, "b", root, budget)
    steps: list[int] = []

    def watch(seen: StepMetrics) -> None:
        steps.append(seen.step)

    assert reproduce_row(row, "b", config, tmp_path, watch, stop=lambda: len(steps) == 1) is None
    assert finished_rows([row], "b", root, budget, tmp_path) == []
    done = reproduce_row(row, "b", config, tmp_path, watch)
    assert done is not None and done.mae > 0
    assert steps == [1, 2, 3, 3]  # the last one is the validation
    assert finished_rows([row], "b", root, budget, tmp_path) == [done]
    with pytest.raises(DataError, match=r"other settings \(lr\)"):
        reproduce_row(row, "b", config.changed(lr=0.5), tmp_path)


def test_the_command_shows_what_is_finished_and_names_what_is_missing(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line(place, tmp_path, "--rows", "MSE")) == 0
    text = capsys.readouterr().out
    assert "| MSE | B |" in text and "Not finished: MSE-MS (B), UniformLen (B)" in text
    assert text.strip() == (tmp_path / "multi-scale.md").read_text().strip()


def test_every_row_of_every_table_is_a_valid_run_with_the_same_budget(tmp_path: Path) -> None:
    assert tuple(TABLES) == command.TABLES
    budget = {"steps": 100, "batch": 4, "crop": 256, "init": "x.pth", "seed": 1}
    runs: dict[Path, Config] = {}
    for rows in TABLES.values():
        assert len({row.name for row in rows}) == len(rows)
        for row in rows:
            config = row_config(row, "a", "here", budget)
            assert (config.steps, config.batch, config.crop, config.seed, config.count_loss) == (100, 4, 256, 1, 0.0)
            assert config.train_on == "fit"
            assert runs.setdefault(run_folder(config, tmp_path), config) == config  # a folder is one run, in all tables
    assert len(runs) == 27 < sum(map(len, TABLES.values()))


def result(name: str, mae: float, paper: float | None, seed: int = 0, part: str = "a") -> RowResult:
    row = TableRow(name, {"intervals": 10}, {} if paper is None else {part: (paper, 1.0)})
    return RowResult(row, part, seed, mae, 1.0, counted=5.0, images=5)


def test_the_order_of_rows_is_compared_within_a_part() -> None:
    results = [result("one", 1.0, 10.0), result("two", 3.0, 20.0), result("three", 2.0, 30.0)]
    rows = by_row([*results, result("plot only", 9.0, None, part="b")])
    assert [verdict for _, _, verdict in compared(rows)] == ["same order", "same order", "other order"]
    text = markdown("test", rows, {"steps": 1, "batch": 2, "crop": 64}, ["four (A)"])
    assert "2 of 3 pairs" in text and "| plot only | B | 5 | 1 | 9.00 | 1.00 | - | - |" in text
    assert "- two 3.00 and three 2.00 (part A)" in text and "Not finished: four (A)." in text
    assert "On part A no row was trained with two seeds" in text and "nobody" not in text


def test_rows_closer_than_two_seeds_are_not_ordered() -> None:
    results = [result("one", 1.0, 10.0), result("one", 2.0, 10.0, seed=1), result("two", 2.2, 20.0)]
    rows = by_row([*results, result("three", 4.0, 30.0)])
    assert noise(rows, "a") == 1.0 and noise(rows, "b") is None
    assert [row.mae for row in rows] == [1.5, 2.2, 4.0]
    verdicts = {(low.row.name, high.row.name): verdict for low, high, verdict in compared(rows)}
    assert verdicts[("one", "two")] == "within the noise" and verdicts[("one", "three")] == "same order"
    text = markdown("test", rows, {"steps": 1, "batch": 2, "crop": 64}, [])
    assert "differs between seeds by up to 1.00" in text and "by no more than the noise" in text


def test_the_regression_is_trained_at_a_rate_at_which_its_relu_stays_alive() -> None:
    rates = {row.name: row_config(row, "b", "here", BUDGET).lr for row in TABLES["multi-scale"]}
    regression = {name: rates.pop(name) for name in ("MSE", "MSE-MS")}
    assert set(regression.values()) == {1e-4} and set(rates.values()) == {1e-3}


def test_a_network_that_counts_nobody_is_named() -> None:
    dead = RowResult(TableRow("MSE", {}), "b", 3, 120.0, 150.0, counted=0.4, images=5)
    assert "learned nothing: MSE (B, seed 3)" in markdown("test", by_row([dead]), BUDGET, [])


@pytest.mark.parametrize("table", ["ablation", "intervals"])
def test_the_picture_shows_every_row_and_part(tmp_path: Path, table: str) -> None:
    results = [result("UEP-10", 5.0, 6.0), result("UEP-25", 4.0, 5.5), result("UEP-10", 2.0, 3.0, part="b")]
    drawn = []
    for index, chosen in enumerate((results[:1], results[:2], results)):
        plot(table, by_row(chosen), tmp_path / f"{index}.png")
        with Image.open(tmp_path / f"{index}.png") as picture:
            drawn.append(np.asarray(picture.convert("RGB")).copy())
    assert drawn[2].shape[0] > drawn[1].shape[0]
    assert drawn[0].shape != drawn[1].shape or not np.array_equal(drawn[0], drawn[1])


def test_the_help_of_the_command_names_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser(only="reproduce").parse_args(["reproduce", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in TABLES)
