"""The quality of a model: errors, ranges, images without people, and the same images at other sizes."""

import argparse

from uepnet.commands.analyses.shared import AnalysisResult, Table, progress, samples_by_data_set


def analyse(args: argparse.Namespace) -> AnalysisResult:
    from uepnet.commands.shared.models import open_model
    from uepnet.commands.shared.sources import samples_of
    from uepnet.training.prepare import empties
    from uepnet.training.report import report

    artifact, run_tiles, _ = open_model(args.model)
    groups = dict(zip(args.dataset.split(","), samples_by_data_set(args), strict=True))
    held, nobody = samples_of(args, "calibration"), empties(args.empty, held_back=True)
    images = sum(len(group) + len(group[::3]) for group in groups.values()) + len(held) + len(nobody)
    with progress("counting", images) as advance:
        numbers = report(groups, held, nobody, artifact, run_tiles, advance)
    rows: Table = [["of", "what", "value"]]
    for name, values in numbers.items():
        rows += [[name, key.replace("_", " "), "-" if value is None else float(value)] for key, value in values.items()]
    return AnalysisResult(dict(numbers), rows)
