"""`uepnet bench`: measurements on this machine; each kind is a module of `uepnet.bench`."""

import argparse
from importlib import import_module

KINDS = {
    "runtime": "torch, ONNX and precisions on the same tiles; the cost of image size and halo",
    "service": "overhead and fairness of the service",
    "growth": "how cost grows with image size, clients, zones and video length",
    "peers": "this service, LitServe and FastAPI + torch compared in one run",
    "load": "load on a running service",
    "bulk": "a folder counted with Ray on this machine, against one process",
    "training": "training steps per second",
}
EPILOG = """examples:
  uepnet bench runtime
  uepnet bench service
  uepnet bench load http://127.0.0.1:8000 --rate 5 10

`uepnet bench KIND --help` explains a kind. Every kind prints {machine, rows} with --json."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure speed on this machine."
    parser.epilog = EPILOG
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, summary in KINDS.items():
        # Heavy imports are inside their `run`, so configuring all of them is cheap.
        import_module(f"uepnet.bench.{name}").configure(
            kinds.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        )


def run(args: argparse.Namespace) -> int:
    return int(import_module(f"uepnet.bench.{args.kind}").run(args))
