"""The decoding of a training run with the lowest error, among those that count nobody in images without people."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from uepnet.commands.analyses.shared import (
    AnalysisResult,
    Table,
    data_set_names,
    progress,
    samples_by_data_set,
    training_run,
)

if TYPE_CHECKING:
    from uepnet.training.decoding import DecodingRow


def analyse(args: argparse.Namespace) -> AnalysisResult:
    from uepnet.model.artifact import Artifact
    from uepnet.model.errors import InputError
    from uepnet.training.decoding import best, compare, why
    from uepnet.training.prepare import empties, load_network

    run = training_run(args.model, "Decodings are compared on a training run: pass its folder as --model.")
    if not all(0 < scale <= 4 for scale in args.scales):
        raise InputError("--scales must lie above 0 and be at most 4.")
    artifact = Artifact.load(run)
    groups, nobody = samples_by_data_set(args), empties(args.empty, held_back=True)
    with progress("counting", sum(map(len, groups)) + len(nobody)) as advance:
        network = load_network(run, artifact)
        rows = compare(network, artifact, groups, nobody, advance, args.scales, not args.no_mirror)
    chosen = best(rows, artifact.scale)
    fit = chosen.fit_for_service()
    if args.write and fit:
        chosen.way.apply(artifact).save(run)
    reason = why(chosen, rows)
    answer = {"rows": [_json(row) for row in rows], "chosen": _json(chosen), "fit_for_service": fit, "reason": reason}
    return AnalysisResult(answer, _table(rows, chosen, data_set_names(args)), reason)


def _json(row: "DecodingRow") -> dict[str, object]:
    return {"scaled": row.scaled, **{key: value for key, value in asdict(row).items() if key != "errors"}}


def _table(rows: "list[DecodingRow]", chosen: "DecodingRow", names: str) -> Table:
    """The argmax of the paper, the plain expectation, the chosen decoding, and the ten with the lowest error."""
    table: Table = [["decoding", f"MAE {names}", f"scaled {names}", "empty images: median / 90 % / mean", ""]]
    lowest = sorted(rows, key=lambda row: sum(row.scaled))[:10]
    for row in rows:
        if row is chosen or row in lowest or (row.way.temperature == 1 and row.way.floor == 0):
            mark = "too many" if not row.fit_for_service() else "chosen" if row is chosen else ""
            numbers = [
                " / ".join(f"{value:.{digits}f}" for value in values)
                for values, digits in ((row.mae, 1), (row.scaled, 2), (row.empty, 2))
            ]
            table.append([str(row.way), *numbers, mark])
    return table
