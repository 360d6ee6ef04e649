"""The trained tables of the paper: the settings of every row, and the paper's MAE and RMSE."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Part = str  # "a" or "b", of ShanghaiTech
Pair = tuple[float, float]  # MAE, RMSE

# What all rows share; the paper's loss and no augmentation but mirroring and, where a row has it, scaling.
SHARED: dict[str, Any] = {
    "encoder": "efficientnet-lite0",
    "input_scale": 1.0,
    "count_loss": 0.0,
    "jitter": 0.0,
    "cut_margin": 0,
    "scale": (1.0, 1.0),
    "heads": "single",
    "proxies": "midpoint",
}
MULTI_SCALE = {"scale": (0.3, 1.3)}
MEAN = {"proxies": "mean"}
# At the rate of the other rows all outputs are negative after some twenty steps: the ReLU then passes no gradient, and
# the network counts nobody for ever.
REGRESSION = {"target": "regression", "output_relu": True, "lr": 1e-4}
OTHERS = (("UniformLen", "uniform-length"), ("UniformNum", "uniform-number"))


@dataclass(frozen=True)
class TableRow:
    name: str
    settings: Mapping[str, Any]
    paper: Mapping[Part, Pair] = field(default_factory=dict)  # empty where the paper gives a plot only


def _ablation() -> tuple[TableRow, ...]:
    interleaved, parallel = {**MEAN, "heads": "interleaved"}, {**MEAN, "heads": "parallel"}
    return (
        TableRow("base", {}, {"a": (61.56, 102.30), "b": (7.72, 12.51)}),
        TableRow("MCP", MEAN, {"a": (58.69, 97.64), "b": (7.64, 13.18)}),
        TableRow("MCP-MS", MEAN | MULTI_SCALE, {"a": (57.97, 100.34), "b": (6.87, 11.33)}),
        TableRow("MCP-IPH", interleaved, {"a": (56.80, 92.01), "b": (7.25, 11.91)}),
        TableRow("MCP-PPH", parallel, {"a": (58.47, 97.51), "b": (7.57, 12.88)}),
        TableRow("MCP-IPH-MS", interleaved | MULTI_SCALE, {"a": (54.64, 91.15), "b": (6.38, 10.88)}),
    )


def _partitions() -> tuple[TableRow, ...]:
    figures = {
        "UniformLen": ((82.62, 90.65), (13.14, 17.17)),
        "UniformNum": ((62.46, 75.26), (10.88, 25.62)),
        "UEP": ((7.72, 12.51), (7.64, 13.18)),
    }
    rows = []
    for name, method in (*OTHERS, ("UEP", "uep")):
        midpoint, mean = figures[name]
        rows.append(TableRow(f"{name}-median", {"partition": method}, {"b": midpoint}))
        rows.append(TableRow(f"{name}-MCP", {"partition": method, **MEAN}, {"b": mean}))
    return tuple(rows)


def _multi_scale() -> tuple[TableRow, ...]:
    kinds: dict[str, tuple[dict[str, Any], Pair, Pair]] = {
        "MSE": (REGRESSION, (13.57, 22.64), (14.65, 24.35)),
        "UniformLen": ({"partition": "uniform-length", **MEAN}, (12.71, 20.38), (12.45, 15.39)),
        "UniformNum": ({"partition": "uniform-number", **MEAN}, (11.25, 26.15), (10.50, 25.74)),
        "UEP": (dict(MEAN), (7.64, 13.18), (6.87, 11.33)),
    }
    rows = []
    for name, (settings, without, with_ms) in kinds.items():
        rows.append(TableRow(name, settings, {"b": without}))
        rows.append(TableRow(f"{name}-MS", settings | MULTI_SCALE, {"b": with_ms}))
    return tuple(rows)


TABLES: dict[str, tuple[TableRow, ...]] = {
    "ablation": _ablation(),
    "partitions": _partitions(),
    "multi-scale": _multi_scale(),
    "strides": (
        TableRow("UEP-8", {}, {"b": (7.72, 12.51)}),
        TableRow("two-linear-16", {"cell": 16, "partition": "two-linear"}, {"b": (9.63, 14.22)}),
        TableRow("UEP-16", {"cell": 16}, {"b": (7.71, 12.80)}),
        TableRow("log-32", {"cell": 32, "partition": "log"}, {"b": (8.81, 14.02)}),
        TableRow("UEP-32", {"cell": 32}, {"b": (7.65, 12.28)}),
    ),
    "intervals": tuple(
        TableRow(f"{name}-{number}", {"partition": method, "intervals": number, **MEAN})
        for name, method in (("UEP", "uep"), *OTHERS)
        for number in (10, 15, 25, 40)
    ),
}
