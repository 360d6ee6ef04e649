"""Properties of the machine: cores, processor features, and the CUDA device's memory."""

import ctypes
import os
from pathlib import Path


def cuda_driver() -> ctypes.CDLL | None:
    """NVIDIA's driver; None on a machine without one."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def cuda_memory(ordinal: int) -> tuple[int, int] | None:
    """(used, total) bytes, from the driver, which honours CUDA_VISIBLE_DEVICES (nvidia-smi does not)."""
    driver = cuda_driver()
    if driver is None or driver.cuInit(0) != 0:
        return None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if driver.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
        return None
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) != 0:
        return None
    try:
        driver.cuCtxPushCurrent_v2(context)
        failed = driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) != 0
        driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)
    return None if failed else (total.value - free.value, total.value)


def available_cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Number of cores this process may use: its CPU affinity, reduced to the quota of its container (cgroup v2)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = limit.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def multiplies_bytes() -> bool:
    """Whether the processor has an int8 dot product. Without it int8 is slow, and sums saturate on older x86."""
    return not {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"}.isdisjoint(processor_features())


def computes_bfloat16() -> bool:
    """Whether an x86 processor multiplies bfloat16 itself."""
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(processor_features())


def has_avx2() -> bool:
    return "avx2" in processor_features()


def processor_features(file: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The flags that Linux reports for the first processor; empty on other systems."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, flags = line.partition(":")
        if name.strip() in ("flags", "Features"):  # x86, ARM
            return frozenset(flags.split())
    return frozenset()
