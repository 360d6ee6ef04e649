"""`uepnet plot`: counts over time as a picture."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from uepnet.commands.shared.alerts import add_alerts, alert_rule

if TYPE_CHECKING:
    from uepnet.model.smoothing import Hysteresis
    from uepnet.video.series import Series

EPILOG = """examples:
  uepnet plot station.jsonl
  uepnet plot gate.jsonl hall.jsonl --alert 500 --out crowd.svg
  uepnet plot north.jsonl south.jsonl --sum --smooth 30

Reads what `uepnet video` writes. The band is the range of each count; a gap interrupts the line. With --alert, every
stretch above that number is marked and printed with its time. Times are local times where the recording has a clock."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Draw counts over time: one or many cameras, their ranges, and when a limit was reached."
    parser.epilog = EPILOG
    parser.add_argument(
        "counts", nargs="+", type=Path, metavar="COUNTS.jsonl", help="recordings that `uepnet video` wrote"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="picture to write: .png, .svg or .pdf (default: the first file's name with .png)",
    )
    parser.add_argument("--sum", action="store_true", help="also draw the sum over all cameras")
    parser.add_argument("--title", metavar="TEXT", help="text above the picture")
    parser.add_argument("--overwrite", action="store_true", help="replace the picture if it exists")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    add_alerts(parser)


def run(args: argparse.Namespace) -> int:
    from uepnet.commands.shared.results import people
    from uepnet.model.outputs import Output, check_outputs
    from uepnet.video.plot import PICTURE_FORMATS, draw
    from uepnet.video.series import load_all, total

    rule = alert_rule(args)
    out = args.out or Path(args.counts[0].with_suffix(".png").name)
    check_outputs([Output("--out", out, PICTURE_FORMATS)], args.counts, args.overwrite)
    series = load_all(args.counts)
    if args.smooth is not None:
        for line in series:
            line.smooth(args.smooth)
    if args.sum:
        series.append(total(series))
    draw(series, out, rule, args.title)
    if args.quiet:
        return 0
    for line in series:
        tell_alerts(line, rule)
    if args.sum:
        known = [
            (count, second) for count, second in zip(series[-1].count, series[-1].seconds, strict=True) if count >= 0
        ]
        if known:
            peak, second = max(known)
            print(f"sum: peak {people(peak)} people at {series[-1].moment(second)}")
    print(out)
    return 0


def tell_alerts(line: "Series", rule: "Hysteresis | None") -> None:
    from uepnet.commands.shared.results import people
    from uepnet.model.file_names import printable
    from uepnet.video.series import breaches

    for breach in [] if rule is None else breaches(line, rule):
        until = "to the end" if breach.end is None else f"until {line.moment(breach.end)}"
        begin = f"{rule.raise_at:g} reached at {line.moment(breach.start)}" if rule is not None else ""
        print(f"{printable(line.label)}: {begin}, {until}, at most {people(breach.peak)} people")
