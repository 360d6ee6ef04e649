"""Give the memory of large images back to the system once they are done."""

import ctypes
import os

# Of glibc's malloc.h: blocks above MMAP_THRESHOLD are taken from the system and returned when they are freed, what is
# free at the end of an arena above TRIM_THRESHOLD goes back, and ARENA_MAX is how many arenas all threads share.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX = -3, -1, -8
SETTINGS = {M_MMAP_THRESHOLD: 16 * 2**20, M_TRIM_THRESHOLD: 32 * 2**20, M_ARENA_MAX: 4}


def return_large_blocks() -> None:
    """Have malloc return what large images leave, and keep what the next tile needs.

    By default glibc keeps blocks of up to 32 MiB in an arena for each few threads, and gigabytes stay with the process
    after a few overlays of 50 megapixels. Where it returns every tile, the system clears new memory for the next one:
    that was a quarter of the host's work. Whoever sets MALLOC_MMAP_THRESHOLD_ knows better; other C libraries have no
    such call.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for setting, value in SETTINGS.items():
            mallopt(setting, value)


def return_free_memory() -> None:
    """Give back all that malloc has free, also between blocks in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
