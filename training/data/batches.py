"""Samples -> an endless, reproducible stream of training tiles.

The tile at a position of the stream depends only on the seed and the position, not on which worker loads it or when:
any number of workers gives the same stream, and a resumed run continues at its position.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from uepnet.model.errors import UepnetError
from uepnet.training.data.augment import Augment, crop
from uepnet.training.data.dataset import Sample
from uepnet.training.data.sample import ADAPTIVE
from uepnet.training.data.synthetic import crowd, drawn, herd, sheet
from uepnet.training.data.targets import Kernel

NOBODY = np.zeros((0, 2))


@dataclass(frozen=True)
class Tiles(Dataset[tuple[Tensor, Tensor]]):
    """position -> (tile [height, width, 3] uint8, local counts [rows, columns] float32)."""

    samples: Sequence[Sample]
    augment: Augment
    cell: int
    padding: tuple[int, int, int]
    seed: int
    kernel: Kernel | None = None  # instead of the kernel of each data set
    empties: Sequence[Sample] = ()
    empty_share: float = 0.0
    degraded_share: float = 0.0  # of the tiles that are cut from a degraded copy
    crowd_share: float = (
        0.0  # of the tiles that are drawn crowds; without these the network learns that drawings are empty
    )
    rehearsed: Sequence[tuple[np.ndarray, np.ndarray]] = ()  # ready tiles of the right size, with their counts
    rehearsed_share: float = 0.0

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        epoch, index = divmod(position, len(self.samples))
        rng = np.random.default_rng((self.seed, 1, position))
        kind = rng.random()
        if kind < self.empty_share:
            tile, counts = self._nobody(rng)
        elif kind < self.empty_share + self.crowd_share:
            tile, counts = self._drawn_crowd(rng)
        elif self.rehearsed and kind > 1 - self.rehearsed_share:
            tile, counts = self.rehearsed[int(rng.integers(len(self.rehearsed)))]
        else:
            order = np.random.default_rng((self.seed, 0, epoch)).permutation(len(self.samples))
            tile, counts = self._crop(self.samples[order[index]], rng)
        return torch.from_numpy(tile), torch.from_numpy(counts)

    def _crop(self, sample: Sample, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        kernel = self.kernel or sample.kernel
        copy = None
        if sample.copies and self.degraded_share and rng.random() < self.degraded_share:
            copy = int(rng.integers(len(sample.copies)))
        return crop(sample.load_image(copy), sample.points, kernel, self.augment, rng, self.cell, self.padding)

    def _drawn_crowd(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        side = self.augment.size or 256
        picture, points = crowd(rng, side, side, rows=int(rng.integers(8, 26)))
        plain = replace(self.augment, scale=(1.0, 1.0))  # drawn at the size at which the network sees people
        return crop(picture, points, self.kernel or ADAPTIVE, plain, rng, self.cell, self.padding)

    def _nobody(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A scene without people: a photograph, several small ones side by side, things cut from them, or a drawing."""
        kind, side = rng.random(), self.augment.size or 256
        if self.empties and kind < 0.4:
            return self._crop(self._empty(rng), rng)
        if self.empties and kind < 0.75:
            make = sheet if kind < 0.5 else herd
            made = make([self._empty(rng).load_image() for _ in range(4)], rng, 2 * side)
            return crop(made, NOBODY, ADAPTIVE, self.augment, rng, self.cell, self.padding)
        scene = np.array(drawn(rng, side, side))  # a copy: Pillow's arrays are read-only
        return scene, np.zeros((side // self.cell, side // self.cell), np.float32)

    def _empty(self, rng: np.random.Generator) -> Sample:
        return self.empties[int(rng.integers(len(self.empties)))]


@dataclass(frozen=True)
class Positions(Sampler[list[int]]):
    """The positions of each step's batch for one of `world` processes, from `step` on."""

    batch: int
    step: int
    steps: int
    rank: int = 0
    world: int = 1

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.step, self.steps):
            first = (step * self.world + self.rank) * self.batch
            yield list(range(first, first + self.batch))

    def __len__(self) -> int:
        return self.steps - self.step


def loader(tiles: Tiles, positions: Positions, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    stream: DataLoader[tuple[Tensor, Tensor]] = DataLoader(
        tiles,
        batch_sampler=positions,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        prefetch_factor=2 if workers else None,
        worker_init_fn=_prepare_worker if workers else None,
    )
    try:
        yield from stream
    except UepnetError as error:
        # A worker's error comes with its traceback as text, whose last line is `module.Class: the sentence`.
        sentence = str(error).strip().splitlines()[-1].partition(f"{type(error).__name__}: ")[2]
        raise type(error)(sentence or str(error)) from None


def _prepare_worker(_: int) -> None:
    """Use one thread, and keep loading when a signal asks the whole process group to stop.

    The training process finishes its step first and then stops its workers with SIGTERM. So a worker obeys SIGTERM
    only if its parent sent it: a thread waits for the signal, because it is told who the sender is.
    """
    torch.set_num_threads(1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)
