"""The number of cores: affinity and container quota."""

import os
from pathlib import Path

import pytest

from uepnet.model.device import available_cores


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("100000 100000", 1),
        ("50000 100000", 1),  # half a core still runs one thread
        ("max 100000", len(os.sched_getaffinity(0))),
        ("99900000 100000", len(os.sched_getaffinity(0))),  # a quota of 999 cores adds none
        ("", len(os.sched_getaffinity(0))),
    ],
)
def test_cores_are_the_affinity_limited_by_the_container_quota(tmp_path: Path, content: str, expected: int) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text(content)
    assert available_cores(limit) == expected


def test_cores_without_a_cgroup_are_the_affinity(tmp_path: Path) -> None:
    assert available_cores(tmp_path / "missing") == len(os.sched_getaffinity(0))
