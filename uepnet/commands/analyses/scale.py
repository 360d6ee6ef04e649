"""Constants for choosing the scale from the image (docs/scale.md), compared with the fixed scale."""

import argparse
import sys
from typing import TYPE_CHECKING

from uepnet.commands.analyses.shared import AnalysisResult, Table, data_set_names, progress, samples_by_data_set

if TYPE_CHECKING:
    from uepnet.training.scales import ScalesRow


def analyse(args: argparse.Namespace) -> AnalysisResult:
    from uepnet.commands.shared.models import open_model
    from uepnet.model.errors import InputError
    from uepnet.training.scales import best, tune

    if args.write and args.model is None:
        raise InputError("The bundled model is never written: pass a run or a model directory as --model.")
    artifact, run_tiles, _ = open_model(args.model)
    groups = samples_by_data_set(args)
    with progress("counting", sum(map(len, groups))) as advance:
        rows = tune(groups, artifact, run_tiles, advance)
    chosen = best(rows)
    if args.write:
        artifact.model_copy(update={"scales": chosen.scales, "calibration": None}).save(args.model)
        print(
            "uepnet: The range was fitted at other scales and is removed; fit it with `uepnet evaluate --calibrate`.",
            file=sys.stderr,
        )
    answer = {"rows": [_json(row) for row in rows], "chosen": _json(chosen)}
    return AnalysisResult(answer, _table(rows, chosen, artifact.scale, data_set_names(args)))


def _json(row: "ScalesRow") -> dict[str, object]:
    scales = None if row.scales is None else row.scales.model_dump()
    return {"scales": scales, "mae": row.mae, "scaled": row.scaled, "bias": row.bias, "megapixels": row.megapixels}


def _table(rows: "list[ScalesRow]", chosen: "ScalesRow", fixed: float, names: str) -> Table:
    """The fixed scale, the ten choices with the lowest error, and the chosen one."""
    table: Table = [["scales", *(f"{what} {names}" for what in ("MAE", "scaled", "megapixels")), ""]]
    for row in (rows[0], *sorted(rows[1:], key=lambda row: sum(row.scaled))[:10], chosen):
        numbers = (row.mae, 1), (row.scaled, 3), (row.megapixels, 2)
        shown = [" / ".join(f"{value:.{digits}f}" for value in values) for values, digits in numbers]
        table.append([_title(row, fixed), *shown, "chosen" if row is chosen else ""])
    return table


def _title(row: "ScalesRow", fixed: float) -> str:
    if row.scales is None:
        return f"fixed {fixed:g}"
    constants = row.scales.model_dump(include={"first_side", "finest", "crowded", "doubt"})
    return " ".join(f"{key} {value:g}" for key, value in constants.items())
