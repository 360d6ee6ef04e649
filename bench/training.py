"""`uepnet bench training`: what a step of training costs, and how much of it is data."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from uepnet.bench.machine import machine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from uepnet.training.data.dataset import Sample

    Points = NDArray[np.float64]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure a training step, the share of it that is data, and targets against filtered maps."
    parser.epilog = """examples:
  uepnet bench training
  uepnet bench training --dataset shanghaitech-b --root ShanghaiTech --steps 10

Without a data set, crowds are generated."""
    parser.add_argument("--dataset", metavar="NAME", help="data set to load tiles from (default: generated crowds)")
    parser.add_argument("--root", metavar="DIR", help="folder of the data set")
    parser.add_argument("--fold", type=int, metavar="N", help="fold of ucf-cc-50, 1 to 5")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps to measure (default: 5)")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="tiles of 256x256 per step (default: 8)")
    parser.add_argument(
        "--people", type=int, default=1000, metavar="N", help="people in the image of the row `targets` (default: 1000)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        metavar="N",
        help="CPU threads of the network; 0 for one per core (default: 0)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        rows = [_step_row(args, Path(folder)), _targets_row(args.people)]
    if args.json:
        print(json.dumps({"machine": machine(), "rows": rows}))
        return 0
    for row in rows:
        print(
            "  ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{value}" for name, value in row.items())
        )
    return 0


def _step_row(args: argparse.Namespace, folder: Path) -> dict[str, str | float]:
    """Seconds of a step of the light network, and of loading its tiles in the same process."""
    import torch

    from uepnet.model.artifact import Layout
    from uepnet.model.device import available_cores
    from uepnet.model.network import build
    from uepnet.training.data.augment import Augment
    from uepnet.training.data.batches import Tiles
    from uepnet.training.inference_graph import normalise

    torch.set_num_threads(args.threads or available_cores())
    tiles = Tiles(_samples(args, folder), Augment(256, scale=(0.5, 1.5), jitter=0.2), 8, (127, 127, 127), seed=0)
    network = build(Layout(encoder="efficientnet-lite0", width=128, classes=(25, 26)))
    network = network.to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(network.parameters())
    mean = std = torch.full((3,), 127.0)
    loading = learning = 0.0
    for step in range(args.steps + 1):
        started = time.perf_counter()
        loaded = [tiles[step * args.batch + index] for index in range(args.batch)]
        batch = torch.stack([tile for tile, _ in loaded])
        ready = time.perf_counter()
        losses = [scores.logsumexp(1).mean() for scores in network(normalise(batch, mean, std))]
        optimiser.zero_grad()
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step:  # the first one warms up
            loading += ready - started
            learning += time.perf_counter() - ready
    return {
        "what": "step",
        "seconds": (loading + learning) / args.steps,
        "data_seconds": loading / args.steps,
        "data_share": loading / (loading + learning),
    }


def _targets_row(people: int) -> dict[str, str | float]:
    """The closed form against one filtered full-size map a person, on a picture of 1024x768."""
    import numpy as np
    from scipy.ndimage import gaussian_filter

    from uepnet.training.data.targets import Kernel, local_counts

    points = np.random.default_rng(0).uniform((0, 0), (1024, 768), (people, 2))
    sigmas = Kernel().sigmas(points, 1024, 768)
    closed = _seconds(lambda: local_counts(points, sigmas, (1024, 768), 8), 10)
    few = 10  # filtering is measured on a few people: it costs the same for each

    def filtered() -> None:
        for (x, y), sigma in zip(points[:few].astype(int), sigmas, strict=False):
            dots = np.zeros((768, 1024), np.float32)
            dots[y, x] = 1
            gaussian_filter(dots, sigma, mode="constant").reshape(96, 8, 128, 8).sum((1, 3))

    slow = _seconds(filtered, 1) * people / few
    return {
        "what": "targets",
        "people": float(people),
        "seconds": closed,
        "filtered_seconds": slow,
        "ratio": slow / closed,
    }


def _seconds(work: Callable[[], object], times: int) -> float:
    work()
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times


def _samples(args: argparse.Namespace, folder: Path) -> "list[Sample]":
    import numpy as np
    from PIL import Image

    from uepnet.training.data.dataset import Sample

    if args.dataset and args.root:
        from uepnet.commands.shared.sources import samples_of

        return samples_of(args, "train")
    rng = np.random.default_rng(0)
    samples = []
    for index in range(8):
        path = folder / f"{index}.jpg"
        Image.fromarray(rng.integers(0, 255, (768, 1024, 3), dtype=np.uint8)).save(path)
        samples.append(Sample(path.name, path, _crowd(rng.uniform((0, 0), (1024, 768), (200, 2)))))
    return samples


def _crowd(points: "Points") -> "Callable[[], Points]":
    return lambda: points
