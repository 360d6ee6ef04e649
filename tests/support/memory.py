"""How much memory a process of its own took."""

# Not ru_maxrss: a process inherits that from whoever started it, and a test's process is large.
PRINT_PEAK_MIB = r"""
import pathlib, re
print(int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024)
"""
