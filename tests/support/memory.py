"""How much memory a process of its own took."""

import os
from pathlib import Path

# Not ru_maxrss: a process inherits that from whoever started it, and a test's process is large.
PRINT_PEAK_MIB = r"""
import pathlib, re
print(int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024)
"""


def resident_mib(process: int) -> float:
    """MiB of a process and its children."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, parent = int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])
            if process in (number, parent):
                total += int((stat.parent / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 2**20
