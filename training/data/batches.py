"""Samples -> an endless, reproducible stream of training tiles.

What stands at a position of the stream depends on the seed and the position alone, never on who loads it or when:
any number of workers gives the same stream, and a resumed run goes on in the middle of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from uepnet.model.errors import UepnetError
from uepnet.training.augment import Augment, crop
from uepnet.training.dataset import Sample
from uepnet.training.drawn import drawn, herd, sheet
from uepnet.training.sample import ADAPTIVE
from uepnet.training.targets import Kernel

NOBODY = np.zeros((0, 2))


@dataclass(frozen=True)
class Tiles(Dataset[tuple[Tensor, Tensor]]):
    """position -> (tile [height, width, 3] uint8, local counts [rows, columns] float32)."""

    samples: Sequence[Sample]
    augment: Augment
    cell: int
    padding: tuple[int, int, int]
    seed: int
    kernel: Kernel | None = None  # instead of each data set's own
    empties: Sequence[Sample] = ()
    empty_share: float = 0.0

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        epoch, index = divmod(position, len(self.samples))
        rng = np.random.default_rng((self.seed, 1, position))
        if rng.random() < self.empty_share:
            tile, counts = self._nobody(rng)
        else:
            order = np.random.default_rng((self.seed, 0, epoch)).permutation(len(self.samples))
            tile, counts = self._crop(self.samples[order[index]], rng)
        return torch.from_numpy(tile), torch.from_numpy(counts)

    def _crop(self, sample: Sample, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        kernel = self.kernel or sample.kernel
        return crop(sample.load_image(), sample.points, kernel, self.augment, rng, self.cell, self.padding)

    def _nobody(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A photograph without people, small ones side by side or things cut from them, else a drawn scene."""
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
        worker_init_fn=_one_thread if workers else None,
    )
    try:
        yield from stream
    except UepnetError as error:
        # A worker's error comes with its traceback as text, whose last line is `module.Class: the sentence`.
        sentence = str(error).strip().splitlines()[-1].partition(f"{type(error).__name__}: ")[2]
        raise type(error)(sentence or str(error)) from None


def _one_thread(_: int) -> None:
    torch.set_num_threads(1)
