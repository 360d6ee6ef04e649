"""`uepnet export`: a training run -> a model directory, which needs no torch."""

import argparse
from pathlib import Path

EPILOG = """examples:
  uepnet export runs/mine --out models/mine
  uepnet export runs/mine --out models/mine --precision fp32,fp16,int8
  uepnet export runs/mine --out models/mine --images photos/     compare on these images instead of the run's

Every file is compared with torch on tiles of several sizes, in every installed engine, and what was measured goes into
artifact.json. A precision past its limit (fp32 0.1 %, fp16 0.5 %, bf16 1 %, int8 2 % of the count) is left out, with
the reason. Later `--precision auto` takes fp16 on a GPU, int8 on a CPU where it is worth it, and fp32 otherwise.
Then: `uepnet count --model models/mine crowd.jpg`, `uepnet serve --model models/mine`."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Turn a training run into a model directory of ONNX files, each compared with torch."
    parser.epilog = EPILOG
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the training run")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="MODEL_DIR", help="folder of the model; must be new or empty"
    )
    parser.add_argument(
        "--precision",
        default="fp32,fp16",
        metavar="LIST",
        help="comma-separated: fp32, fp16, int8 (default: fp32,fp16)",
    )
    parser.add_argument(
        "--decoding",
        choices=["argmax", "expectation"],
        help="how the model turns classes into counts; argmax is the paper's (default: the run's)",
    )
    parser.add_argument(
        "--images",
        type=Path,
        metavar="DIR",
        help="images of crowds for the comparison and for int8 ranges (default: those of the run)",
    )
    parser.add_argument("--tiles", type=int, default=16, metavar="N", help="number of tiles to compare (default: 16)")
    parser.add_argument(
        "--unproven",
        action="store_true",
        help="export even if the tiles have too few classes for a meaningful comparison",
    )


def run(args: argparse.Namespace) -> int:
    from typing import get_args

    from uepnet.model.artifact import Artifact, Precision
    from uepnet.model.errors import InputError
    from uepnet.training.export import export
    from uepnet.training.parity import LARGE, SMALL, cut_probes, probe_images

    precisions = list(dict.fromkeys(args.precision.split(",")))
    known = [name for name in get_args(Precision) if name != "bf16"]  # computed from the fp32 file
    unknown = [precision for precision in precisions if precision not in known]
    if unknown:
        raise InputError(f"--precision takes {', '.join(known)}, not {unknown[0]!r}.")
    if args.tiles < 1:
        raise InputError("--tiles must be at least 1.")
    scale = Artifact.load(args.run).scale  # the scale at which the model sees images
    compared, calibrated = probe_images(args.run, args.images)
    done = export(
        args.run,
        args.out,
        precisions,
        probes=cut_probes(compared, args.tiles, LARGE, seed=0, scale=scale),
        calibration=cut_probes(calibrated, 24, SMALL, seed=1, scale=scale) if "int8" in precisions else (),
        unproven=args.unproven,
        decoding=args.decoding,
        watch=lambda text: print(text, flush=True),
    )
    for reason in done.refused.values():
        print(reason)
    print(f"Done: {args.out} with {', '.join(done.artifact.files)}. Try: uepnet count --model {args.out} IMAGE")
    return 1 if done.refused else 0
