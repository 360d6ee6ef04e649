"""Servers that several tests share; see tests/servers.py for how they are run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.servers import HeldRuntime, Process, Running, running
from support.toy import toy_model
from uepnet.model.artifact import Calibration
from uepnet.service.core.loaded_model import InferenceRuntime
from uepnet.service.settings import Settings

CALIBRATION = Calibration(level=0.9, low=-0.5, high=0.75, offset=1, power=0.5, images=100)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("models") / "toy", calibration=CALIBRATION)


@pytest.fixture(scope="session")
def service(model_dir: Path) -> Iterator[Running]:
    """One server for all tests that leave no trace in it."""
    with running(Settings(port=0, model=model_dir, history="off")) as server:
        yield server


@pytest.fixture
def serve(model_dir: Path) -> Iterator[Callable[..., Running]]:
    """Servers with settings of the test's own."""
    with ExitStack() as stack:

        def start(runtime: InferenceRuntime | None = None, ready: bool = True, **settings: Any) -> Running:
            chosen = Settings(**{"port": 0, "model": model_dir, "history": "off", **settings})
            return stack.enter_context(running(chosen, runtime, ready))

        yield start


@pytest.fixture
def held(model_dir: Path) -> Iterator[HeldRuntime]:
    """A runtime whose batches the test holds and releases."""
    runtime = HeldRuntime(model_dir)
    yield runtime
    runtime.go.set()


@pytest.fixture
def process(model_dir: Path) -> Iterator[Callable[..., Process]]:
    """`uepnet serve` as processes."""
    started: list[Process] = []

    def start(model: Path | None = model_dir, ready: bool = True, **settings: object) -> Process:
        started.append(Process(model, **{"history": "off", **settings}))
        if ready:
            started[-1].wait_until_ready()
        return started[-1]

    yield start
    for one in started:
        one.close()
