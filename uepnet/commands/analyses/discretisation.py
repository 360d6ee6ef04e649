"""The error of each partition and kind of proxy if every cell is classified correctly (Table 6 of the paper)."""

import argparse

from uepnet.commands.analyses.shared import AnalysisResult, Table


def analyse(args: argparse.Namespace) -> AnalysisResult:
    from uepnet.commands.shared.sources import samples_of
    from uepnet.training.analyse import discretisation, plot_table
    from uepnet.training.data.targets import count_maps

    fitted = count_maps(samples_of(args, "train"), args.cell)
    table = discretisation(fitted, count_maps(samples_of(args), args.cell), args.intervals, args.knee)
    if args.plot:
        plot_table(table, args.plot)
    rows: Table = [["partition", "mean", "midpoint", "median"]]
    rows += [[method, row["mean"], row["midpoint"], row["median"]] for method, row in table.items()]
    return AnalysisResult({"table": table}, rows)
