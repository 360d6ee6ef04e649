"""`uepnet plot`: counts over time as a picture."""

import argparse
from pathlib import Path

EPILOG = """examples:
  uepnet plot station.jsonl
  uepnet plot gate.jsonl hall.jsonl --alert 500 --out crowd.svg

Reads what `uepnet video` writes. The band is the range of each count; a gap interrupts the line. With --alert,
every stretch at or above that number is marked, and told with its time."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Draw counts over time: one or many cameras, their ranges, and when a threshold was reached."
    parser.epilog = EPILOG
    parser.add_argument("counts", nargs="+", type=Path, metavar="COUNTS.jsonl", help="from `uepnet video`")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help=".png, .svg or .pdf (default: the first file's name with .png)"
    )
    parser.add_argument("--alert", type=threshold, metavar="PEOPLE", help="mark when this many are reached")
    parser.add_argument("--title", help="above the picture")
    parser.add_argument("--quiet", action="store_true", help="say nothing")


def run(args: argparse.Namespace) -> int:
    from uepnet.commands.results import people
    from uepnet.service.plot import alerts, draw, load_series

    series = [line for path in args.counts for line in load_series(path)]
    out = args.out or Path(args.counts[0].with_suffix(".png").name)
    draw(series, out, args.alert, args.title)
    if args.quiet:
        return 0
    for line in series:
        for alert in alerts(line, args.alert) if args.alert is not None else ():
            until = f"until {line.moment(alert.end)}" if alert.end is not None else "to the end"
            peak = f"at most {people(alert.peak)} people"
            print(f"{line.label}: {args.alert:g} reached at {line.moment(alert.start)}, {until}, {peak}")
    print(out)
    return 0


def threshold(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of people")
    return number
