"""Options that `count` and `video` share: where the counting is done, and how to get there."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uepnet.model.zones import Zone
    from uepnet.service.backends import Backend


def add_counting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zones", type=Path, metavar="FILE", help="count within named polygons, too (docs/zones.md)")
    here = parser.add_argument_group("counting in this process (the default)")
    here.add_argument(
        "--model", type=Path, metavar="DIR", help="a model directory or a training run; without it the bundled model"
    )
    here.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    here.add_argument("--precision", default="auto", choices=["auto", "fp32", "fp16", "int8"])
    here.add_argument("--threads", type=natural_number, default=0, help="threads of CPU inference; 0 for all cores")
    there = parser.add_argument_group("counting on a server")
    there.add_argument(
        "--server", metavar="URL", help="such as http://localhost:8000; its key, if any, in UEPNET_API_KEY"
    )
    there.add_argument(
        "--in-flight", type=positive_number, metavar="N", help="images sent at once (default: 8; live: 2)"
    )
    there.add_argument(
        "--patience",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for a server that is busy or went away (default: 60)",
    )


def open_backend(args: argparse.Namespace, with_map: bool, camera: str | None = None) -> "Backend":
    """The server asked for, or the model in this process; `with_map` where pictures are drawn."""
    from uepnet.model.errors import InputError

    if args.server is None:
        from uepnet.commands.models import open_model
        from uepnet.service.backends import InProcess

        artifact, run_tiles, _ = open_model(args.model, args.device, args.precision, args.threads)
        return InProcess(artifact, run_tiles)

    from uepnet.service.backends import OverServer
    from uepnet.service.client import Client

    if args.model is not None:
        raise InputError("--model and --server exclude each other: a server counts with its own model.")
    return OverServer(Client(args.server, patience_seconds=args.patience), args.in_flight, camera, with_map)


def load_zones(args: argparse.Namespace) -> "tuple[Zone, ...]":
    if args.zones is None:
        return ()
    from uepnet.model.zones import load_zones

    return load_zones(args.zones)


def natural_number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is below 0")
    return number


def positive_number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds")
    return number
