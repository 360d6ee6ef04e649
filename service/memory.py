"""Give the memory of large images back to the system once they are done."""

import ctypes
import os

M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
THRESHOLD_BYTES = 2**20


def return_large_blocks() -> None:
    """Have malloc take each block above 1 MiB from the system and return it when it is freed.

    By default glibc raises this threshold to 32 MiB while a program runs, keeps what is below, and gigabytes stay with
    the process after a few overlays of 50 megapixels. Whoever sets MALLOC_MMAP_THRESHOLD_ knows better; other C
    libraries have no such call.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES)


def return_free_memory() -> None:
    """Give back all that malloc has free, also between blocks in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
