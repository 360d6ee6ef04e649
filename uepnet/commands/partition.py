"""`uepnet partition`: count intervals and proxies from annotated data."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uepnet.training.config import Config
    from uepnet.training.data.dataset import Sample
    from uepnet.training.partition import Partition

EPILOG = """examples:
  uepnet partition --dataset shanghaitech-a --root ShanghaiTech
  uepnet partition --dataset csv --root my-camera --intervals 25 --plot intervals.png
  uepnet partition --dataset shanghaitech-b --root ShanghaiTech --json > intervals.json
  uepnet partition --dataset csv --root my-camera --preset fast --input-scale 1.5

Without options the setting is the paper's: all training images at their own size. With --preset, --input-scale or
--train-on the intervals are those that `uepnet train` fits with the same options.

m counts all intervals, background included: 25 intervals have 24 borders. The second head's borders are the first
head's proxies, so it has one interval more."""

AS_TRAINING = ("input_scale", "train_on")
SETTINGS = ("intervals", "partition", "proxies", "heads", "knee", "top_interval", "cell", "t0", "kernel")


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.sources import data_options, overwrite_option
    from uepnet.commands.shared.training_options import add_settings

    parser.description = (
        "Divide the local counts of a data set into intervals of equal error (UEP), with mean proxies (MCP)."
    )
    parser.epilog = EPILOG
    data_options(parser, split="train")
    parser.set_defaults(split=None)
    parser.add_argument(
        "--preset", choices=["fast", "paper"], help="show the intervals that training with this preset would use"
    )
    add_settings(parser, AS_TRAINING, "the intervals that `uepnet train` would use with the same options")
    add_settings(parser, SETTINGS, "intervals")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the intervals over the histogram of counts")
    parser.add_argument("--json", action="store_true", help="print JSON")
    overwrite_option(parser)


def run(args: argparse.Namespace) -> int:
    import json

    from uepnet.commands.shared.sources import check_outputs
    from uepnet.training.analyse import plot_partition
    from uepnet.training.data.targets import local_counts_of
    from uepnet.training.prepare import fit_partition

    check_outputs(args, {}, {"--plot": args.plot})
    samples, config = _setting(args)
    made = fit_partition(samples, config)
    if args.plot:
        counts = local_counts_of(samples, config.cell, config.kernel_override, config.input_scale)
        plot_partition(made, counts, args.plot)
    if args.json:
        heads = [
            {"borders": head.borders, "proxies": head.proxies, "samples": made.samples[index], "n_l": made.n_l(index)}
            for index, head in enumerate(made.heads)
        ]
        print(json.dumps({"intervals": config.intervals, "t_max": made.t_max, "heads": heads}))
    else:
        _show(made)
    return 0


def _setting(args: argparse.Namespace) -> "tuple[list[Sample], Config]":
    """The paper's setting (all training images as they are); with an option of training, what training would use."""
    from uepnet.commands.shared.sources import pairs, samples_of
    from uepnet.commands.shared.training_options import given
    from uepnet.model.errors import InputError
    from uepnet.training.config import PRESETS, Config
    from uepnet.training.prepare import repeated, training_parts

    flags = given(args)
    as_training = args.preset is not None or any(name in flags for name in AS_TRAINING)
    if as_training and args.split is not None:
        raise InputError("--split cannot be combined with --preset, --input-scale or --train-on: use --train-on.")
    values = PRESETS[args.preset or "fast"] if as_training else {}
    data = {"data": pairs(args.dataset, args.root), "fold": args.fold or 0}
    config = Config.of(values | flags | data, flags=flags)
    if as_training:
        return repeated(training_parts(config), ()), config
    return samples_of(args, args.split or "train"), config


def _show(made: "Partition") -> None:
    from rich.console import Console
    from rich.table import Table

    for index, head in enumerate(made.heads):
        table = Table(title=f"head {index}: {len(head.proxies)} classes, largest local count {made.t_max:.4g}")
        for title in ("class", "from", "to", "proxy", "samples", "n x l"):
            table.add_column(title, justify="right")
        table.add_row("0", "0", f"{head.borders[0]:.5g}", "0", f"{made.samples[index][0]:,}", "")
        uppers = [f"{border:.5g}" for border in head.borders[1:]] + ["open"]
        rows = zip(head.borders, uppers, head.proxies[1:], made.samples[index][1:], made.n_l(index), strict=True)
        for number, (low, high, proxy, samples, n_l) in enumerate(rows, 1):
            table.add_row(str(number), f"{low:.5g}", high, f"{proxy:.5g}", f"{samples:,}", f"{n_l:.5g}")
        Console().print(table)
