"""What a server's processes took: CPU seconds and memory, read from /proc, children included."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_seconds: float  # user and system, of all processes so far
    peak_mib: float  # sum of the processes' largest resident sizes


def usage(pid: int) -> Usage:
    """Of a process and all below it. A process that ends meanwhile is left out."""
    ticks = os.sysconf("SC_CLK_TCK")
    cpu = peak = 0.0
    for process in tree(pid):
        try:
            fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
            status = (PROC / str(process) / "status").read_text()
        except OSError:
            continue
        cpu += (int(fields[11]) + int(fields[12])) / ticks
        peak += next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0)
    return Usage(cpu, peak)


def tree(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for task in (PROC / str(pid) / "task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from tree(int(child))
