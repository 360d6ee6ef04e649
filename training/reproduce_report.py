"""A reproduced table: beside the paper's figures, where the order of rows holds and where not, and as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from uepnet.training.paper_tables import Part, TableRow
from uepnet.training.reproduce import RowResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED = "#31688e", "#d1495b"
Verdict = Literal["same order", "other order", "within the noise"]


@dataclass(frozen=True)
class MeasuredRow:
    """A row on a part of the data: the mean over its seeds."""

    row: TableRow
    part: Part
    runs: tuple[RowResult, ...]

    @property
    def mae(self) -> float:
        return float(np.mean([run.mae for run in self.runs]))

    @property
    def rmse(self) -> float:
        return float(np.mean([run.rmse for run in self.runs]))

    @property
    def spread(self) -> float:
        """Between the best and the worst seed."""
        return float(np.ptp([run.mae for run in self.runs]))


def by_row(results: Sequence[RowResult]) -> list[MeasuredRow]:
    """Results of the same row and part, which follow each other, as one."""
    return [
        MeasuredRow(*key, tuple(runs)) for key, runs in groupby(results, key=lambda result: (result.row, result.part))
    ]


def noise(rows: Sequence[MeasuredRow], part: Part) -> float | None:
    """The largest difference in MAE between two seeds of a row; None where no row has two."""
    spreads = [row.spread for row in rows if row.part == part and len(row.runs) > 1]
    return max(spreads) if spreads else None


def compared(rows: Sequence[MeasuredRow]) -> list[tuple[MeasuredRow, MeasuredRow, Verdict]]:
    """Pairs of rows that the paper orders: (lower MAE in the paper, higher, what is found here)."""
    pairs: list[tuple[MeasuredRow, MeasuredRow, Verdict]] = []
    for index, one in enumerate(rows):
        for other in rows[:index]:
            if one.part == other.part and one.part in one.row.paper and one.part in other.row.paper:
                lower, higher = sorted((other, one), key=lambda row: row.row.paper[row.part][0])
                difference = higher.mae - lower.mae
                unsure = abs(difference) <= (noise(rows, one.part) or 0.0)
                same: Verdict = "same order" if difference > 0 else "other order"
                pairs.append((lower, higher, "within the noise" if unsure else same))
    return pairs


def markdown(table: str, rows: Sequence[MeasuredRow], budget: Mapping[str, Any], missing: Sequence[str]) -> str:
    """The table beside the paper's figures, and what it says of the order of its rows."""
    lines = [
        f"Table `{table}`: {budget['steps']} steps of {budget['batch']} tiles of {budget['crop']} pixels per row, "
        "light network, measured on the split val. MAE and RMSE are means over the seeds.",
        "",
        "| row | part | images | seeds | MAE | RMSE | MAE of the paper | RMSE of the paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        theirs = [f"{value:.2f}" for value in one.row.paper.get(one.part, ())] or ["-", "-"]
        lines.append(
            f"| {one.row.name} | {one.part.upper()} | {one.runs[0].images} | {len(one.runs)} | {one.mae:.2f} "
            f"| {one.rmse:.2f} | {theirs[0]} | {theirs[1]} |"
        )
    lines += [""] if missing else []
    lines += [f"Not finished: {', '.join(missing)}."] if missing else []
    return "\n".join([*lines, *_order(rows), *_nobody(rows)]) + "\n"


def _order(rows: Sequence[MeasuredRow]) -> list[str]:
    pairs = compared(rows)
    if not pairs:
        return []
    said = [verdict for _, _, verdict in pairs]
    lines = [
        "",
        f"{said.count('same order')} of {len(pairs)} pairs of rows have the order that they have in the paper.",
    ]
    for part in sorted({row.part for row in rows}):
        found = noise(rows, part)
        known = (
            "no row was trained with two seeds, so the noise is not known"
            if found is None
            else f"the MAE of a row differs between seeds by up to {found:.2f} (noise)"
        )
        lines.append(f"On part {part.upper()} {known}.")
    titles: tuple[tuple[Verdict, str], ...] = (
        ("other order", "Pairs in the opposite order"),
        ("within the noise", "Pairs that differ by no more than the noise"),
    )
    for verdict, title in titles:
        named = [
            f"{lower.row.name} {lower.mae:.2f} and {higher.row.name} {higher.mae:.2f} (part {lower.part.upper()})"
            for lower, higher, found in pairs
            if found == verdict
        ]
        if named:
            lines += [
                "",
                f"{title}; the row that is better in the paper comes first:",
                *(f"- {name}" for name in named),
            ]
    return lines


def _nobody(rows: Sequence[MeasuredRow]) -> list[str]:
    runs = [run for row in rows for run in row.runs if run.counted < 0.01 * run.mae]
    dead = [f"{run.row.name} ({run.part.upper()}, seed {run.seed})" for run in runs]
    return ["", f"Runs that count almost nobody, so they have learned nothing: {', '.join(dead)}."] if dead else []


def plot(table: str, rows: Sequence[MeasuredRow], path: Path) -> None:
    """A bar for each row, ours beside the paper's; for the table `intervals` the curves of Figure 4."""
    from matplotlib.figure import Figure

    from uepnet.model.outputs import picture_format, whole_file

    parts = sorted({row.part for row in rows})
    columns = 1 if table == "intervals" else 2
    most = max(sum(row.part == part for row in rows) for part in parts)
    figure = Figure(figsize=(10, len(parts) * (4.5 if columns == 1 else 1.2 + 0.4 * most)), layout="constrained")
    grid = figure.subplots(len(parts), columns, squeeze=False)
    for part, line in zip(parts, grid, strict=True):
        chosen = [row for row in rows if row.part == part]
        line[0].set_title(f"part {part.upper()}, split val, light network")
        if columns == 1:
            _curves(line[0], chosen)
            continue
        _bars(line[0], chosen, {index: row.mae for index, row in enumerate(chosen)}, BLUE)
        for index, row in enumerate(chosen):
            line[0].plot([run.mae for run in row.runs], [index] * len(row.runs), "|", color="black", markersize=12)
        theirs = {index: row.row.paper[part][0] for index, row in enumerate(chosen) if part in row.row.paper}
        _bars(line[1], chosen, theirs, RED)
        line[1].set_title(f"part {part.upper()}, the paper's, test split, VGG-16")
    with whole_file(path) as file:
        figure.savefig(file, dpi=120, format=picture_format(path))


def _bars(axes: "Axes", rows: Sequence[MeasuredRow], lengths: Mapping[int, float], colour: str) -> None:
    bars = axes.barh(list(lengths), list(lengths.values()), color=colour)
    axes.bar_label(bars, fmt="%.2f", padding=4)
    axes.set(xlabel="MAE, people", yticks=range(len(rows)), ylim=(len(rows) - 0.4, -0.6))
    axes.set_yticklabels([row.row.name for row in rows])
    axes.margins(x=0.15)


def _curves(axes: "Axes", rows: Sequence[MeasuredRow]) -> None:
    methods = dict.fromkeys(row.row.name.rpartition("-")[0] for row in rows)
    for method in methods:
        own = [row for row in rows if row.row.name.rpartition("-")[0] == method]
        axes.plot([int(row.row.settings["intervals"]) for row in own], [row.mae for row in own], "o-", label=method)
    axes.set(xlabel="intervals", ylabel="MAE, people", ylim=(0, None))
    axes.legend()
