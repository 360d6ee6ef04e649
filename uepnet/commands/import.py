"""`uepnet import`: the published checkpoint of the paper's authors -> a run."""  # noqa: N999 - named as the command

import argparse
from pathlib import Path

EPILOG = """examples:
  uepnet import ckpt/best_net_ClsPred.pth --intervals intervals.json --out runs/published
  uepnet evaluate --dataset shanghaitech-a --root ShanghaiTech --split test --model runs/published
  uepnet export runs/published --out models/published --images photos/

The checkpoint is the four files *_net_VggBackbone.pth, *_net_DivideUpsample0.pth, *_net_DivideUpsample1.pth and
*_net_ClsPred.pth of the authors' code: name one of them, or their folder. The intervals are in the authors' code, too.
Write them into a JSON file; proxies start with 0, the background's count:
  {"t_max": 8.7, "heads": [{"borders": [0.00016, ...], "proxies": [0, ...]}, {"borders": [...], "proxies": [...]}]}
In that code label_indices and indices_proxy are the borders and proxies of the first head, label_indices2 and
indices_proxy2 those of the second, and max_density is t_max.

The authors publish their checkpoint for academic use only. This command was tested with a network built to the
published layout, never with the authors' own files."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Turn the published checkpoint of the paper's authors into a run."
    parser.epilog = EPILOG
    parser.add_argument("checkpoint", type=Path, metavar="FILE", help="one of the four files, or their folder")
    parser.add_argument("--intervals", type=Path, required=True, metavar="TABLE.json", help="borders and proxies")
    parser.add_argument("--out", type=Path, required=True, metavar="RUN", help="folder of the run; new or empty")
    parser.add_argument(
        "--mean",
        type=float,
        nargs=3,
        metavar=("RED", "GREEN", "BLUE"),
        help="mean that is subtracted from RGB in [0, 1] (default: 0.4501 0.4454 0.4301, of the code for part A)",
    )


def run(args: argparse.Namespace) -> int:
    from uepnet.training.published_checkpoint import LICENCE, MEAN, import_checkpoint

    mean = tuple(args.mean) if args.mean else MEAN
    artifact = import_checkpoint(args.checkpoint, args.intervals, args.out, mean)
    print(f"Done: {args.out}, {sum(artifact.layout.classes)} classes in two heads. {LICENCE}")
    return 0
