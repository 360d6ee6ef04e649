"""What the machine offers: cores, and the CUDA device's memory."""

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
    """(used, total) bytes, asked of the driver: unlike nvidia-smi it honours CUDA_VISIBLE_DEVICES."""
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


def available_cores() -> int:
    """Cores this process may use: its affinity, and the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def multiplies_bytes() -> bool:
    """Whether the processor has an int8 dot product. Without one int8 is slow, and on older x86 saturates."""
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return not {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"}.isdisjoint(flags)
