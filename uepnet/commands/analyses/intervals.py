"""The error of correctly classified cells for several numbers of intervals (the question of Figure 4)."""

import argparse

from uepnet.commands.analyses.shared import AnalysisResult

NUMBERS = (5, 10, 15, 20, 25, 40, 60)


def analyse(args: argparse.Namespace) -> AnalysisResult:
    from uepnet.commands.shared.sources import samples_of
    from uepnet.training.analyse import interval_sweep, plot_sweep
    from uepnet.training.data.targets import count_maps

    fitted = count_maps(samples_of(args, "train"), args.cell)
    rows = interval_sweep(fitted, count_maps(samples_of(args), args.cell), NUMBERS, args.knee)
    if args.plot:
        plot_sweep(rows, args.plot)
    return AnalysisResult({"rows": rows}, [list(rows[0]), *[list[str | float](row.values()) for row in rows]])
