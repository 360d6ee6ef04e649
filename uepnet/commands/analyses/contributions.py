"""The share of a model's error that comes from each true interval and from the background (Figure 6 of the paper)."""

import argparse

from uepnet.commands.analyses.shared import AnalysisResult, Table


def analyse(args: argparse.Namespace) -> AnalysisResult:
    from uepnet.commands.shared.models import open_model
    from uepnet.commands.shared.sources import samples_of
    from uepnet.training.analyse import error_contributions, plot_contributions
    from uepnet.training.data.targets import local_counts_of, parse_kernel
    from uepnet.training.partition import partition

    artifact, run_tiles, _ = open_model(args.model)
    kernel = parse_kernel(str(artifact.training.get("settings", {}).get("kernel", "")))
    heads = artifact.heads
    if not heads:  # a regression model is measured by the intervals of the training split
        counts = local_counts_of(samples_of(args, "train"), artifact.cell, kernel, artifact.scale)
        heads = partition(counts, args.intervals).heads
    answer = error_contributions(samples_of(args), artifact, run_tiles, kernel, heads)
    if args.plot:
        plot_contributions(answer["heads"], args.plot)
    rows: Table = [["head", "interval", "cells", "error, people per image", "share of error"]]
    for number, head in enumerate(answer["heads"]):
        columns = zip(head["cells"], head["errors"], head["shares"], strict=True)
        rows += [[str(number), str(index), *row] for index, row in enumerate(columns)]
    return AnalysisResult(dict(answer), rows)
