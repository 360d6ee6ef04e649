import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.paths import ROOT
from support.servers import HeldRuntime, running
from support.toy import toy_model

from uepnet.service.settings import Settings

SMOKE = ROOT / "deploy/smoke"


def smoke(url: str, *words: str, key: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UEPNET_")}
    environment |= {"UEPNET_API_KEY": key} if key else {}
    return subprocess.run(
        [sys.executable, "-I", SMOKE, url, *words], env=environment, capture_output=True, text=True, timeout=120
    )


def failed(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAIL")]


def test_a_good_service_passes_every_check(tmp_path: Path) -> None:
    with running(Settings(port=0, model=toy_model(tmp_path))) as service:
        done = smoke(service.url)
    assert (done.returncode, failed(done), done.stderr) == (0, [], "")
    assert "toy 1 on cpu, fp32" in done.stdout
    assert len(done.stdout.splitlines()) == 6


def test_a_guarded_service_passes_with_its_key_and_fails_without(tmp_path: Path) -> None:
    with running(Settings(port=0, model=toy_model(tmp_path), api_keys=("the-key-of-this",))) as service:
        assert smoke(service.url, key="the-key-of-this").returncode == 0
        without = smoke(service.url)
        wrong = smoke(service.url, key="another-key")
    assert without.returncode == wrong.returncode == 1
    assert failed(without) == failed(wrong)[:4] == ["ready", "counts", "refuses", "measures"]


def test_an_open_service_fails_where_a_key_was_expected_to_be_needed(tmp_path: Path) -> None:
    with running(Settings(port=0, model=toy_model(tmp_path))) as service:
        done = smoke(service.url, key="the-key-of-this")
    assert (done.returncode, failed(done)) == (1, ["guards"])


def test_a_service_that_cannot_count_is_told_from_one_that_is_down(tmp_path: Path) -> None:
    runtime = HeldRuntime(toy_model(tmp_path))
    runtime.spoil = MemoryError("spoilt by the test")
    with running(Settings(port=0), runtime) as service:
        done = smoke(service.url)
    assert (done.returncode, failed(done)) == (1, ["counts", "measures"])


def test_it_waits_for_a_service_that_just_starts(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results: list[subprocess.CompletedProcess[str]] = []
    waiting = threading.Thread(target=lambda: results.append(smoke(f"http://127.0.0.1:{port}", "--wait", "60")))
    waiting.start()
    threading.Event().wait(1)
    with running(Settings(port=port, model=toy_model(tmp_path))):
        waiting.join(90)
    assert results[0].returncode == 0, results[0].stdout


def test_nobody_there_fails_every_check() -> None:
    done = smoke("http://127.0.0.1:9")
    assert (done.returncode, len(failed(done))) == (1, 5)
    assert done.stderr == ""


@pytest.fixture
def stranger() -> Iterator[str]:
    """Some other service, which says yes to everything."""

    class Yes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"yes")

        do_POST: Callable[..., None] = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Yes) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_service_that_is_not_ours_fails(stranger: str) -> None:
    done = smoke(stranger)
    assert (done.returncode, failed(done)) == (1, ["counts", "refuses", "measures"])
