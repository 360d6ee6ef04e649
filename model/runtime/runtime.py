"""Tiles in, maps out, whatever engine runs.

Before the first image `Runtime` finds out whether the model directory is whole, which engine and precision the rule
chooses, and whether the device really runs it. Here tiles are padded, batched and cropped; engines see whole batches.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uepnet.model.artifact import Artifact, model_directory
from uepnet.model.decode import Maps
from uepnet.model.device import available_cores
from uepnet.model.errors import DeviceError, InferenceError
from uepnet.model.runtime.choice import why_unproven
from uepnet.model.runtime.engine import Outputs
from uepnet.model.runtime.opening import Wanted, open_engine
from uepnet.model.shapes import MAX_BATCH_PIXELS
from uepnet.model.tiling import Tile

BUNDLED = Path(__file__).parent.parent / "bundled"

log = logging.getLogger(__name__)


class Runtime:
    """A model directory on a device. Raises ModelError, with the reason, where it cannot run as asked.

    Counts that nobody has compared with torch's, or that differ too much, are warned of; `warn=False` is for the
    comparison itself.
    """

    def __init__(
        self,
        model_dir: Path | None = None,
        device: str = "auto",
        precision: str = "auto",
        threads: int = 0,
        max_batch: int = 8,
        max_batch_pixels: int = MAX_BATCH_PIXELS,
        engine: str = "auto",
        warn: bool = True,
    ) -> None:
        self.model_dir = BUNDLED if model_dir is None else model_directory(Path(model_dir))
        self.artifact = Artifact.load(self.model_dir)
        self.threads = threads if threads > 0 else available_cores()
        opened = open_engine(
            Wanted(self.model_dir, self.artifact, device, precision, engine, self.threads, max_batch, max_batch_pixels)
        )
        self._engine = opened.engine
        self.choice = opened.choice
        self.fallback = opened.fallback
        self.policy = opened.policy
        self.engine = opened.engine.name
        self.engine_version = opened.engine.version
        self.precision = opened.choice.precision
        self.device = opened.engine.device
        self.provider = opened.engine.provider
        log.info("%s. %s", self, self.choice.reason)
        self.unproven = why_unproven(self.artifact, self.engine, self.precision)
        if warn and self.unproven is not None:
            log.warning(self.unproven)

    def __str__(self) -> str:
        """What runs, in one line for logs and tables."""
        model = f"{self.artifact.name} {self.artifact.version}"
        return f"{model} in {self.precision} on {self.device}, {self.engine} {self.engine_version}"

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return self.policy.batch_sizes

    def padded_shape(self, height: int, width: int) -> tuple[int, int]:
        """The shape in which a tile reaches the device; tiles of equal padded shape may share a batch."""
        return self.policy.padded_shape(height, width)

    def device_memory(self) -> tuple[int, int] | None:
        """(used, total) bytes of the GPU; None on the CPU or where the driver does not say."""
        return self._engine.memory()

    def run(self, tiles: NDArray[np.uint8] | Sequence[Tile]) -> list[Maps]:
        """The maps of each tile: [n, h, w, 3], or tiles of several shapes that have one padded shape."""
        most = self._most(tiles[0]) if len(tiles) else 1
        return [maps for start in range(0, len(tiles), most) for maps in self._run(tiles[start : start + most])]

    def run_tiles(self, tiles: Iterator[Tile]) -> Iterator[Maps]:
        """Lazy in, in order out: holds one batch at a time."""
        batch: list[Tile] = []
        for tile in tiles:
            if batch and (
                len(batch) == self._most(batch[0])
                or self.padded_shape(*tile.shape[:2]) != self.padded_shape(*batch[0].shape[:2])
            ):
                yield from self._run(batch)
                batch = []
            batch.append(tile)
        if batch:
            yield from self._run(batch)

    def warm_up(self) -> None:
        """Run every bucket once: allocates, picks convolution algorithms, and proves that the device can."""
        colour = np.array(self.artifact.normalisation.padding, np.uint8)
        for n, height, width in self.policy.warm_up_shapes(self.artifact.tiling.tile):
            try:
                self.run(np.broadcast_to(colour, (n, height, width, 3)))
            except InferenceError as error:
                raise DeviceError(f"Warm-up failed: {error}") from error

    def _most(self, tile: Tile) -> int:
        return self.policy.most_tiles(*self.padded_shape(*tile.shape[:2]))

    def _run(self, tiles: NDArray[np.uint8] | Sequence[Tile]) -> list[Maps]:
        """At most one batch of tiles of one padded shape."""
        batch = self._padded(tiles)
        outputs = self._engine.infer(batch)
        rows, columns = (side // self.artifact.cell for side in batch.shape[1:3])
        for name, output in outputs.items():
            if output.shape != (len(batch), rows, columns):
                raise InferenceError(
                    f"The model answered {name} of shape {output.shape} to tiles of shape {batch.shape}."
                )
        return [self._maps(outputs, index, *tile.shape[:2]) for index, tile in enumerate(tiles)]

    def _padded(self, tiles: NDArray[np.uint8] | Sequence[Tile]) -> NDArray[np.uint8]:
        """One contiguous [bucket, padded height, padded width, 3]; a copy only where something is padded."""
        height, width = self.padded_shape(*tiles[0].shape[:2])
        size = self.policy.batch_size(len(tiles))
        multiple = self.artifact.multiple
        if height % multiple or width % multiple:
            raise ValueError(f"a tile's sides must be multiples of {multiple}, not {width}x{height}")
        if size == len(tiles) == 1 and tiles[0].shape[:2] == (height, width):
            return np.ascontiguousarray(tiles[0])[np.newaxis]
        batch = np.empty((size, height, width, 3), np.uint8)
        batch[:] = self.artifact.normalisation.padding
        for slot, tile in zip(batch, tiles, strict=False):
            slot[: tile.shape[0], : tile.shape[1]] = tile
        return batch

    def _maps(self, outputs: Outputs, index: int, height: int, width: int) -> Maps:
        """The maps of one tile without the cells that only padding fills."""
        rows, columns = -(-height // self.artifact.cell), -(-width // self.artifact.cell)
        cropped = {name: output[index, :rows, :columns] for name, output in outputs.items()}
        classes = tuple(cropped[f"classes_{head}"] for head in range(len(self.artifact.heads)))
        return Maps(classes, cropped.get("counts"), cropped.get("variance"), cropped.get("familiarity"))
