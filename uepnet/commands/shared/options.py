"""Options that `count` and `video` share: zones, the model in this process, or a server."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

PATIENCE, LIVE_PATIENCE = 60.0, 2.0  # seconds; a live frame that waits longer is out of date

if TYPE_CHECKING:
    from uepnet.client.backends import Backend
    from uepnet.model.zones import Zone


def add_counting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zones", type=Path, metavar="FILE", help="also count within named polygons (docs/zones.md)")
    here = parser.add_argument_group("counting in this process (the default)")
    here.add_argument(
        "--model", type=Path, metavar="DIR", help="model directory or training run (default: the bundled model)"
    )
    add_runtime(here)
    there = parser.add_argument_group("counting on a server")
    there.add_argument(
        "--server",
        metavar="URL",
        help="address of a service, such as http://localhost:8000; its key is read from UEPNET_API_KEY",
    )
    there.add_argument(
        "--in-flight", type=positive_number, metavar="N", help="images sent at the same time (default: 8; live: 2)"
    )
    there.add_argument(
        "--patience",
        type=seconds,
        metavar="SECONDS",
        help="time to wait for a server that is busy or unreachable (default: 60; live: 2, then a gap is written)",
    )


def add_runtime(parser: argparse._ActionsContainer) -> None:
    """The four options of commands that load a model: device, engine, precision, threads."""
    parser.add_argument(
        "--device",
        default="auto",
        metavar="DEVICE",
        help="auto, cpu, cuda, tensorrt or intel-gpu; cuda:1 is the second GPU (default: auto)",
    )
    parser.add_argument(
        "--engine", default="auto", choices=["auto", "onnxruntime", "openvino"], help="inference engine (default: auto)"
    )
    parser.add_argument(
        "--precision",
        default="auto",
        choices=["auto", "fp32", "fp16", "bf16", "int8"],
        help="number format; auto picks the fastest within its limit of error, never bf16 (default: auto)",
    )
    parser.add_argument(
        "--threads",
        type=natural_number,
        default=0,
        metavar="N",
        help="threads for inference on the CPU; 0 for one per core (default: 0)",
    )


def open_backend(args: argparse.Namespace, with_map: bool, camera: str | None = None, live: bool = False) -> "Backend":
    """The server that was named, or the model in this process; `with_map` where pictures are drawn."""
    from uepnet.model.errors import InputError

    if args.server is None:
        from uepnet.client.backends import InProcess
        from uepnet.commands.shared.models import open_model

        artifact, run_tiles, _ = open_model(args.model, args.device, args.precision, args.threads, args.engine)
        return InProcess(artifact, run_tiles)

    from uepnet.client.backends import OverServer
    from uepnet.client.client import Client

    if args.model is not None:
        raise InputError("--model and --server exclude each other: a server counts with its own model.")
    patience = args.patience if args.patience is not None else LIVE_PATIENCE if live else PATIENCE
    return OverServer(Client(args.server, patience_seconds=patience), args.in_flight, camera, with_map)


def counting_inputs(args: argparse.Namespace) -> list[Path]:
    """The files that counting reads, besides images."""
    import uepnet.model

    paths = [] if args.zones is None else [args.zones]
    bundled = Path(uepnet.model.__path__[0]) / "bundled"
    return paths if args.server is not None else [*paths, args.model or bundled]


def load_zones(args: argparse.Namespace) -> "tuple[Zone, ...]":
    if args.zones is None:
        return ()
    from uepnet.model.zones import load_zones

    return load_zones(args.zones)


def natural_number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {number}")
    return number


def positive_number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds, not {text}")
    return number
