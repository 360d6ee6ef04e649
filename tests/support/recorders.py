"""`uepnet video` as a process, and what it has written."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from uepnet.video.recording import read_records


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "uepnet", "video", *map(str, arguments)]


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def records(path: Path) -> list[dict[str, Any]]:
    return list(read_records(path))


def assert_numbered_upwards(found: list[dict[str, Any]]) -> None:
    """No number twice; a gap has the number of the frame that comes next."""
    counted = [record["frame"] for record in found if "count" in record]
    assert counted == sorted(set(counted))
    assert [record["frame"] for record in found] == sorted(record["frame"] for record in found)
