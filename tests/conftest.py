"""What every test relies on."""

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from support.paths import DATA

pytest_plugins = ["support.service_fixtures"]

# A shell that starts a job in the background makes it ignore Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test writes into the state directory of whoever runs it.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="uepnet-state-")

# A law holds or it does not; how long an example takes says something about the machine.
settings.register_profile("uepnet", deadline=None)
settings.load_profile("uepnet")


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Finds a folder of real images below UEPNET_DATA (default: ../shared/data); skips the test where there is none."""

    def find(folder: str) -> Path:
        path = DATA / folder
        if not path.is_dir():
            pytest.skip(f"no real data: {folder} was not found in {DATA}")
        return path

    return find
