"""One process or many: rank, device, sums over processes, and the log that only the first one writes."""

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import torch

# DistributedDataParallel imports this module, whose functions keep the group that there is by then as their default.
# Imported before any group is made they keep none: a destroyed group then really ends, with its threads, which would
# otherwise wait for Python while it goes and so abort the process.
import torch.distributed.nn
from torch import Tensor, distributed, nn

from uepnet.model.errors import DeviceError

if TYPE_CHECKING:
    from uepnet.training.train import Progress


@contextmanager
def processes(device: str) -> Iterator[tuple[int, int, torch.device]]:
    """(rank, world, device) of this process; joins the others where torchrun started several."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceError("There is no CUDA device here: train with --device cpu.")
    if world == 1:
        yield 0, 1, torch.device(device)
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = device.startswith("cuda")
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield distributed.get_rank(), world, torch.device(f"cuda:{local}" if on_gpu else "cpu")
    finally:
        distributed.destroy_process_group()


def keep_memory() -> None:
    """Keep freed memory for the next step instead of handing it back to the system.

    glibc maps every tensor of more than 32 MiB anew, and the system clears its pages each time: a fifth of a step on
    a CPU. It holds for the whole process, so it is for a command to call.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # not every libc has it
        mallopt(-4, 0)  # M_MMAP_MAX: no mappings of their own
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: nothing is returned
        mallopt(-2, 64 << 20)  # M_TOP_PAD: more than is asked for, so that a slightly larger tensor fits too


def wrap(network: nn.Module, device: torch.device) -> Callable[[Tensor], list[Tensor]]:
    if not distributed.is_initialized():
        return network
    return nn.parallel.DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)


def autocast(device: torch.device, on_cpu: bool) -> torch.autocast:
    """bfloat16 on CUDA: half the memory and no loss scaling; a CPU stays in float32 unless it is told otherwise."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda" or on_cpu)


def total(values: list[float], device: torch.device) -> list[float]:
    """The sums over all processes."""
    if not distributed.is_initialized():
        return values
    tensor = torch.tensor(values, dtype=torch.float64, device=device)
    distributed.all_reduce(tensor)
    summed: list[float] = tensor.tolist()
    return summed


def mean(values: dict[str, float], device: torch.device) -> dict[str, float]:
    world = distributed.get_world_size() if distributed.is_initialized() else 1
    return {name: value / world for name, value in zip(values, total(list(values.values()), device), strict=True)}


def agree(stop: bool, device: torch.device) -> bool:
    """Whether any process was asked to stop."""
    return total([float(stop)], device)[0] > 0


class Log:
    """metrics.jsonl and TensorBoard, cut back to the checkpoint that a run goes on from."""

    def __init__(self, folder: Path, step: int, enabled: bool) -> None:
        self._enabled = enabled
        if not enabled:
            return
        from torch.utils.tensorboard import SummaryWriter

        path = folder / "metrics.jsonl"
        if path.exists():
            lines = path.read_text().splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
            path.write_text("".join(kept))
        self._file = path.open("a")
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, progress: "Progress", every: int = 1) -> None:
        if not self._enabled or progress.step % every:
            return
        self._file.write(json.dumps({"step": progress.step, "kind": progress.kind, **progress.values}) + "\n")
        for name, value in progress.values.items():
            self._board.add_scalar(f"{progress.kind}/{name}", value, progress.step)

    def flush(self) -> None:
        if self._enabled:
            self._file.flush()
            self._board.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            self._file.close()
            self._board.close()
