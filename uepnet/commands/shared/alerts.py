"""Options of smoothing and alerts, which `video` and `plot` share, and how an alert is told."""

import argparse
from typing import TYPE_CHECKING

from uepnet.commands.shared.options import seconds

if TYPE_CHECKING:
    from uepnet.model.smoothing import Hysteresis


def add_alerts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("smoothing and alerts")
    group.add_argument(
        "--smooth",
        type=seconds,
        metavar="SECONDS",
        help="also record the median of the last SECONDS, and use it for the peak and for alerts "
        "(default: none; alerts 5)",
    )
    group.add_argument("--alert", type=people_limit, metavar="PEOPLE", help="report when the count reaches PEOPLE")
    group.add_argument(
        "--alert-clear",
        type=people_limit,
        metavar="PEOPLE",
        help="an alert ends when the count falls below PEOPLE (default: 90 %% of --alert)",
    )
    group.add_argument(
        "--alert-for",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="report only a count that stays at --alert for SECONDS (default: 0)",
    )


def alert_rule(args: argparse.Namespace) -> "Hysteresis | None":
    from uepnet.model.errors import InputError
    from uepnet.model.smoothing import Hysteresis

    if args.alert is None:
        if args.alert_clear is not None or args.alert_for:
            raise InputError("--alert-clear and --alert-for belong to --alert: give the number of people, too.")
        return None
    return Hysteresis(args.alert, args.alert_clear, args.alert_for)


def people_limit(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of people above 0")
    return number
