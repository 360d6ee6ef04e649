"""`uepnet export`: a training run -> a model directory that serves without torch."""

import argparse
from pathlib import Path

EPILOG = """examples:
  uepnet export runs/mine --out models/mine
  uepnet export runs/mine --out models/mine --precision fp32,fp16,int8
  uepnet export runs/mine --out models/mine --images photos/     compare on these pictures, not the run's own

Every file is compared with torch on tiles of several sizes, and what was measured goes into artifact.json. A
precision past its limit (fp32 0.1 %, fp16 0.5 %, int8 2 % of the count) is left out, and said why. `--device auto`
later takes fp16 on CUDA, int8 on a CPU where it is worth it, fp32 otherwise.
Then: `uepnet count --model models/mine crowd.jpg`, `uepnet serve --model models/mine`."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Turn a training run into a model directory (ONNX), each file proven against torch."
    parser.epilog = EPILOG
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--out", type=Path, required=True, metavar="MODEL_DIR", help="the model's folder (new)")
    parser.add_argument("--precision", default="fp32,fp16", help="fp32, fp16, int8, by commas (fp32,fp16)")
    parser.add_argument("--images", type=Path, metavar="DIR", help="pictures of crowds to compare and calibrate on")
    parser.add_argument("--tiles", type=int, default=16, metavar="N", help="tiles to compare on (16)")
    parser.add_argument(
        "--unproven", action="store_true", help="export although the tiles show too few classes to prove anything"
    )


def run(args: argparse.Namespace) -> int:
    from typing import get_args

    from uepnet.model.artifact import Artifact, Precision
    from uepnet.model.errors import InputError
    from uepnet.training.export import export
    from uepnet.training.parity import LARGE, SMALL, cut_probes, probe_images

    precisions = list(dict.fromkeys(args.precision.split(",")))
    unknown = [precision for precision in precisions if precision not in get_args(Precision)]
    if unknown:
        raise InputError(f"--precision takes {', '.join(get_args(Precision))}, not {unknown[0]!r}.")
    if args.tiles < 1:
        raise InputError("--tiles must be at least 1.")
    scale = Artifact.load(args.run).scale  # the size at which it will see images
    compared, calibrated = probe_images(args.run, args.images)
    done = export(
        args.run,
        args.out,
        precisions,
        probes=cut_probes(compared, args.tiles, LARGE, seed=0, scale=scale),
        calibration=cut_probes(calibrated, 24, SMALL, seed=1, scale=scale) if "int8" in precisions else [],
        unproven=args.unproven,
        watch=lambda text: print(text, flush=True),
    )
    for reason in done.refused.values():
        print(reason)
    print(f"Done: {args.out} with {', '.join(done.artifact.files)}. Try: uepnet count --model {args.out} IMAGE")
    return 1 if done.refused else 0
