"""`uepnet partition`: count intervals and proxies from annotated data."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uepnet.training.partition import Partition

EPILOG = """examples:
  uepnet partition --dataset shanghaitech-a --root ShanghaiTech
  uepnet partition --dataset csv --root my-camera --intervals 25 --plot intervals.png
  uepnet partition --dataset shanghaitech-b --root ShanghaiTech --json > intervals.json

m counts all intervals, background included: 25 intervals have 24 borders. The second head's borders are the first
head's proxies, so it has one interval more."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.sources import data_options

    parser.description = (
        "Divide the local counts of a data set into intervals of equal error (UEP), with mean proxies (MCP)."
    )
    parser.epilog = EPILOG
    data_options(parser, split="train")
    parser.add_argument(
        "--intervals", type=int, default=25, help="intervals of the first head, background included (25)"
    )
    parser.add_argument(
        "--partition", choices=["uep", "uniform-length", "uniform-number", "two-linear", "log"], default="uep"
    )
    parser.add_argument("--proxies", choices=["mean", "midpoint", "median"], default="mean")
    parser.add_argument("--heads", choices=["interleaved", "parallel", "single"], default="interleaved")
    parser.add_argument(
        "--knee", type=float, default=0.5, help="where two-linear turns coarse, in people per cell (0.5)"
    )
    parser.add_argument("--cell", type=int, choices=[8, 16, 32], default=8, help="side of a cell in pixels (8)")
    parser.add_argument(
        "--kernel", default="", help="fixed:SIGMA, adaptive or adaptive:SMALLEST:LARGEST; default: the data set's"
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the intervals over the histogram of counts")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import json

    from uepnet.commands.sources import check_outputs, samples_of
    from uepnet.training.analyse import local_counts_of, plot_partition
    from uepnet.training.config import parse_kernel
    from uepnet.training.partition import partition

    check_outputs(picture=args.plot)
    counts = local_counts_of(samples_of(args), args.cell, parse_kernel(args.kernel))
    made = partition(counts, args.intervals, args.partition, args.proxies, args.heads, knee=args.knee)
    if args.plot:
        plot_partition(made, counts, args.plot)
    if args.json:
        heads = [
            {"borders": head.borders, "proxies": head.proxies, "samples": made.samples[index], "n_l": made.n_l(index)}
            for index, head in enumerate(made.heads)
        ]
        print(json.dumps({"intervals": args.intervals, "t_max": made.t_max, "heads": heads}))
    else:
        _show(made)
    return 0


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
