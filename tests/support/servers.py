"""Real servers for tests: uvicorn on a free port, in a thread or as a process of its own."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from support.waiting import SOON, eventually
from uepnet.model.decode import Maps
from uepnet.model.runtime import Runtime
from uepnet.service.core.loaded_model import InferenceRuntime
from uepnet.service.http.server import HttpServer, bind
from uepnet.service.settings import Settings


def encoded(array: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind)
    return file.getvalue()


def grey(width: int, height: int, value: int = 255) -> NDArray[np.uint8]:
    return np.full((height, width, 3), value, np.uint8)


@contextmanager
def running(settings: Settings, runtime: InferenceRuntime | None = None, ready: bool = True) -> Iterator["Running"]:
    """A server in a thread of this process."""
    listener = bind(settings)
    port = listener.getsockname()[1]
    server = HttpServer(settings, runtime)
    server.start(listener)
    # verify=False: there is no TLS, and reading the certificates of the system would take as long as many a test.
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SOON, verify=False) as http:
        eventually(lambda: server.started)
        if ready:
            eventually(lambda: server.state.is_ready)
        try:
            yield Running(server, http, port)
        finally:
            server.stop()
            assert server.join(SOON), "the server did not stop"


class Running:
    def __init__(self, server: HttpServer, http: httpx.Client, port: int) -> None:
        self.server = server
        self.state = server.state
        self.http = http
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def count(self, content: bytes, kind: str = "image/png", **options: Any) -> httpx.Response:
        headers = {"Content-Type": kind, **options.pop("headers", {})}
        return self.http.post("/v1/count", content=content, headers=headers, **options)

    def metric(self, name: str, /, **labels: str) -> float:
        value = self.state.metrics.registry.get_sample_value(name, labels)
        assert value is not None, f"no sample {name} {labels}"
        return value


class HeldRuntime(Runtime):
    """The real runtime, but each batch waits for `go`, and `spoil` makes it fail."""

    def __init__(self, model_dir: Path) -> None:
        super().__init__(model_dir, device="cpu")
        self.go = threading.Event()
        self.go.set()
        self.tiles = 0
        self.spoil: BaseException | None = None

    def run(self, tiles: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> list[Maps]:
        self.tiles += len(tiles)
        assert self.go.wait(SOON)
        if self.spoil is not None:
            raise self.spoil
        return super().run(tiles)


class Process:
    """`uepnet serve` as a process; its log is kept."""

    def __init__(self, model: Path | None, port: int = 0, **settings: object) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("UEPNET_")}
        environment |= {f"UEPNET_{name.upper()}": str(value) for name, value in settings.items()}
        command = [sys.executable, "-m", "uepnet", "serve", "--port", str(port)]
        self.popen = subprocess.Popen(
            command if model is None else [*command, "--model", str(model)],
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        eventually(lambda: self._port() or self.popen.poll() is not None)
        assert self.popen.poll() is None, "".join(self.log)
        self.port = int(self._port() or 0)
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=SOON, verify=False)

    def wait_until_ready(self) -> None:
        eventually(lambda: self.http.get("/v2/health/ready").status_code == 200)

    def terminate(self) -> None:
        self.popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.popen.kill()
        self.exit_code()

    def exit_code(self) -> int:
        code = self.popen.wait(SOON)
        self._reader.join(SOON)
        return code

    def close(self) -> None:
        self.http.close()
        self.popen.kill()
        self.exit_code()
        assert self.popen.stderr is not None
        self.popen.stderr.close()

    def _port(self) -> str | None:
        return next(
            (found[1] for line in self.log if (found := re.search(r"listening on http://\S*:(\d+)", line))), None
        )

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.log.append(line.rstrip("\n"))
