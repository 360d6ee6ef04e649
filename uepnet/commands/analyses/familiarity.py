"""Fit the head that recognises images unlike the training images of a run; the run must be exported again."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from uepnet.commands.analyses.shared import AnalysisResult, Table, progress, samples_by_data_set, training_run

if TYPE_CHECKING:
    from uepnet.training.data.dataset import Sample


def analyse(args: argparse.Namespace) -> AnalysisResult:
    from uepnet.model.artifact import Artifact
    from uepnet.training import familiarity
    from uepnet.training.config import Config
    from uepnet.training.prepare import empties, load_network, training_parts

    run = training_run(args.model, "Familiarity is fitted to the training images of a run: pass its folder as --model.")
    config, artifact = Config.read(run), Artifact.load(run)
    trained_on = [sample for part in training_parts(config) for sample in part]
    trained_on += empties(config.empty, held_back=False)
    groups = _groups(args)
    with progress("looking", len(trained_on) + sum(map(len, groups.values()))) as advance:
        network = load_network(run, artifact)
        fitted = familiarity.fit(network, artifact, trained_on, config.seed, advance)
        shares = {}
        for name, samples in groups.items():
            scores = familiarity.familiarities(network, fitted.artifact, samples, advance)
            shares[name] = float((scores < fitted.threshold).mean())
    if args.write:
        familiarity.save(fitted.head, run)
        fitted.artifact.save(run)
        print("uepnet: Export the run again: its network has a new output.", file=sys.stderr)
    rows: Table = [["images", "number", "unfamiliar"]]
    rows += [[name, len(groups[name]), f"{share:.1%}"] for name, share in shares.items()]
    return AnalysisResult({"threshold": fitted.threshold, "unfamiliar": shares}, rows)


def _groups(args: argparse.Namespace) -> "dict[str, list[Sample]]":
    """The images to measure, by a name for the table: the split of each data set, and the images without people."""
    from uepnet.commands.shared.sources import pairs
    from uepnet.training.prepare import empties

    names = (f"{name} {Path(root).name}" for name, root in pairs(args.dataset, args.root))
    groups = dict(zip(names, samples_by_data_set(args), strict=True))
    if args.empty:
        groups["empty"] = empties(args.empty, held_back=True)
    return groups
