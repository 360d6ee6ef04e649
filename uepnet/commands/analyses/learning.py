"""The loss, learning rate and validation errors of a training run over its steps; a run under way has them, too."""

import argparse

from uepnet.commands.analyses.shared import AnalysisResult, Table


def analyse(args: argparse.Namespace) -> AnalysisResult:
    from uepnet.model.errors import InputError
    from uepnet.training.learning_curve import plot_learning, read_log, stretches

    if args.model is None:
        raise InputError("A learning curve needs a training run: pass its folder as --model.")
    log = read_log(args.model)
    if args.plot:
        plot_learning(log, args.plot)
    rows = stretches(log)
    table: Table = [["step", "mean loss", "learning rate", "MAE", "RMSE"]]
    for row in rows:
        values = (row["loss"], row["lr"], row["mae"], row["rmse"])
        table.append([str(row["step"]), *("-" if value is None else value for value in values)])
    return AnalysisResult({"rows": rows}, table)
