"""The limit on open files is raised to what the settings need."""

import subprocess
import sys

import pytest

ALLOW = """
import resource, sys
from uepnet.service.open_files import allow_open_files
from uepnet.service.settings import Settings

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
try:
    allow_open_files(Settings(max_connections=500))
except Exception as error:
    print(type(error).__name__, error)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def allowed(soft: int, hard: int) -> list[str]:
    command = [sys.executable, "-c", ALLOW, str(soft), str(hard)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(("soft", "after"), [(256, 756), (755, 756), (1500, 1500)])
def test_a_low_soft_limit_is_raised_and_a_high_one_kept(soft: int, after: int) -> None:
    assert allowed(soft, 2000) == [str(after)]


def test_a_hard_limit_that_is_too_low_is_told() -> None:
    said, soft = allowed(256, 300)
    assert said.startswith(
        "InputError UEPNET_MAX_CONNECTIONS = 500 needs 756 open files, and this process may open 300"
    )
    assert soft == "256"
