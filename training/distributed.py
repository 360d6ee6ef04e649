"""One process or many: rank, device, and sums over processes."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

# DistributedDataParallel imports this module, and functions of it keep the process group that exists at that moment
# as a default. Imported here, before any group exists, they keep none. Otherwise the threads of a destroyed group live
# on, and the process aborts when Python exits.
import torch.distributed.nn
from torch import Tensor, distributed, nn

from uepnet.model.errors import DeviceError


@contextmanager
def processes(device: str) -> Iterator[tuple[int, int, torch.device]]:
    """(rank, number of processes, device) of this process. Joins the others if torchrun started several."""
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
    """Keep freed memory for the next step instead of returning it to the operating system.

    glibc maps new memory for every tensor of more than 32 MiB, and the system clears its pages each time: a fifth of
    the time of a step on a CPU. The setting holds for the whole process, so only a command should call this.
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


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bfloat16 or fp32; `auto` is bfloat16 on CUDA, where it halves the memory, and fp32 on a CPU.

    On CUDA, fp32 means 24 bits of precision: the TF32 convolutions that cuDNN uses by default have 11.
    """
    if device.type == "cuda" and precision == "fp32":
        torch.backends.cudnn.allow_tf32 = False
    on_cuda = device.type == "cuda" and precision == "auto"
    return torch.autocast(device.type, torch.bfloat16, enabled=on_cuda or precision == "bfloat16")


def total(values: list[float], device: torch.device) -> list[float]:
    """Sum over all processes."""
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
