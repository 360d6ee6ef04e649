"""`uepnet bench`: measures on this machine; each kind is a module of `uepnet.bench`."""

import argparse
from importlib import import_module

KINDS = {
    "runtime": "torch, ONNX and their precisions on the same tiles; the cost of size and halo",
    "service": "what the service costs on top of the model",
    "load": "put load on a running service",
    "training": "steps a second of training",
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
        # Their heavy imports stand inside run: configuring all of them costs next to nothing.
        import_module(f"uepnet.bench.{name}").configure(
            kinds.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        )


def run(args: argparse.Namespace) -> int:
    return int(import_module(f"uepnet.bench.{args.kind}").run(args))
