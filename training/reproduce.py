"""The tables of the paper, trained anew: every row with the light network and the same budget of steps.

The figures are for comparing rows with each other. The paper's come from VGG-16, longer training and the test splits;
these come from the held-back split `val`, so that the order of rows can be compared, not the size of the errors.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uepnet.model.artifact import Artifact
from uepnet.model.errors import DataError
from uepnet.model.outputs import whole_text
from uepnet.training.config import FILE, Config
from uepnet.training.evaluate import evaluate, summary, torch_runner
from uepnet.training.metrics_log import StepMetrics
from uepnet.training.paper_tables import SHARED, Part, TableRow
from uepnet.training.prepare import held_back, load_network
from uepnet.training.train import train

RESULT = "result.json"


@dataclass(frozen=True)
class RowResult:
    """The error of one run of a row. `counted` is the mean count of an image: near 0 if the network learned nothing."""

    row: TableRow
    part: Part
    seed: int
    mae: float
    rmse: float
    counted: float
    images: int


def row_config(row: TableRow, part: Part, root: str, budget: Mapping[str, Any]) -> Config:
    """The settings of a row; `budget` holds what is equal for all rows: steps, batch, crop, init; and the seed."""
    data = ((f"shanghaitech-{part}", root),)
    steps = int(budget["steps"])
    shared = SHARED | {"warm_up": max(1, steps // 10), "validate_every": steps, "validate_images": 1}
    return Config.of(shared | dict(budget) | dict(row.settings) | {"data": data})


def reproduce_row(
    row: TableRow,
    part: Part,
    config: Config,
    out: Path,
    watch: Callable[[StepMetrics], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> RowResult | None:
    """Train the row, or go on with it, and measure it. None if `stop` ended it before its last step."""
    run = run_folder(config, out)
    resume = (run / FILE).is_file()
    if resume:
        _check_settings(run, config)
    if not (run / RESULT).is_file():
        train(run, config, resume=resume, watch=watch, stop=stop)
        if not _finished(run, config):
            return None
        with whole_text(run / RESULT) as file:
            file.write(json.dumps(_measured(run, config)) + "\n")
    return _read(row, part, run, config.seed)


def finished_rows(
    rows: Iterable[TableRow], part: Part, root: str, budget: Mapping[str, Any], out: Path
) -> list[RowResult]:
    """What `out` holds of these rows, whichever command trained it: every seed that was measured."""
    found = []
    for row in rows:
        config = row_config(row, part, root, dict(budget) | {"seed": 0})
        for run in sorted(run_folder(config, out).parent.glob("seed-*")):
            if (run / RESULT).is_file():
                seed = int(run.name.removeprefix("seed-"))
                _check_settings(run, config.changed(seed=seed))
                found.append(_read(row, part, run, seed))
    return found


def run_folder(config: Config, out: Path) -> Path:
    """Named by the settings in which rows differ: rows of several tables that are the same run share it."""
    names: list[str] = [config.partition, config.proxies, config.heads]
    names += [f"{field}{getattr(config, field)}" for field in ("cell", "intervals") if _unusual(config, field)]
    if config.target == "regression":
        names = ["mse"]
    names += ["ms"] if config.scale != SHARED["scale"] else []
    return out / config.data[0][0].rpartition("-")[2] / "-".join(names) / f"seed-{config.seed}"


def _unusual(config: Config, field: str) -> bool:
    return bool(getattr(config, field) != Config.model_fields[field].default)


def _check_settings(run: Path, config: Config) -> None:
    """Rows can be compared only if all of them have the budget that was asked for."""
    there = Config.read(run)
    differing = [name for name in Config.model_fields if getattr(there, name) != getattr(config, name)]
    if differing:
        raise DataError(
            f"{run} was started with other settings ({', '.join(differing)}): choose another --out, or those settings."
        )


def _read(row: TableRow, part: Part, run: Path, seed: int) -> RowResult:
    figures = json.loads((run / RESULT).read_text())
    return RowResult(row, part, seed, **figures)


def _finished(run: Path, config: Config) -> bool:
    return (run / "weights.safetensors").is_file() and Artifact.load(run).metrics.get("step") == config.steps


def _measured(run: Path, config: Config) -> dict[str, float | int | None]:
    import torch

    artifact = Artifact.load(run)
    runner = torch_runner(load_network(run, artifact), artifact, torch.device("cpu"))
    results = evaluate(held_back(config), artifact, runner)
    figures = summary(results)
    counted = sum(result.counted for result in results) / len(results)
    return {"mae": figures["mae"], "rmse": figures["rmse"], "counted": counted, "images": len(results)}
