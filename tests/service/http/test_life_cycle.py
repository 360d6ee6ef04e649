"""`uepnet serve` as a process of its own: start, readiness, kill, drain, overload, reload."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from support.servers import SOON, Process, encoded, eventually
from support.toy import toy_model

from uepnet.model.runtime import BUNDLED
from uepnet.service.http.server import bind
from uepnet.service.settings import Settings

Start = Callable[..., Process]
LARGE = encoded(np.random.default_rng(0).integers(0, 255, (1500, 2000, 3)).astype(np.uint8), "JPEG")
JPEG = {"Content-Type": "image/jpeg"}


@pytest.fixture
def start(process: Start) -> Start:
    """With the bundled model where it is, else the toy one: what is tested is the process around it."""

    def started(**settings: object) -> Process:
        if (BUNDLED / "artifact.json").is_file():
            return process(model=None, **settings)
        return process(**settings)

    return started


def serve_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "uepnet", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SOON, check=False)


def in_flight(server: Process) -> float:
    lines = httpx.get(f"{server.url}/metrics", timeout=SOON).text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("uepnet_requests_in_flight ")))


def ask(server: Process, results: list[object]) -> threading.Thread:
    def target() -> None:
        try:
            results.append(httpx.post(f"{server.url}/v1/count", content=LARGE, headers=JPEG, timeout=SOON).status_code)
        except httpx.TransportError as error:
            results.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "/nowhere"], "uepnet: /nowhere is not a model directory: it has no artifact.json."),
        (["--port", "x"], "uepnet: --port = x: it must be a whole number"),
        (
            ["--models-dir", "/nowhere"],
            "uepnet: /nowhere is not a folder: --models-dir names the folder with the models for reloads.",
        ),
        (["--precision", "fp16", "--model", "{model}"], "uepnet: This model has no fp16 file; it has fp32."),
        (
            ["--host", "192.0.2.1", "--insecure", "1", "--model", "{model}"],
            "uepnet: Cannot listen on 192.0.2.1 port 8000: ",
        ),
    ],
)
def test_a_wrong_start_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str, model_dir: Path) -> None:
    result = serve_command("--log-level", "error", *(text.format(model=model_dir) for text in arguments))
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(sentence)
    assert "Traceback" not in result.stderr


@pytest.mark.skipif((BUNDLED / "artifact.json").is_file(), reason="there is a bundled model")
def test_without_any_model_the_start_is_refused() -> None:
    result = serve_command()
    assert result.returncode == 2
    assert result.stderr == "uepnet: This installation has no bundled model: name a model directory with --model DIR.\n"


def test_a_port_that_is_taken_is_told(model_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = serve_command("--port", str(port), "--model", str(model_dir))
    assert result.returncode == 2
    assert f"uepnet: Cannot listen on 127.0.0.1 port {port}: Address already in use." in result.stderr


def test_help_names_every_flag_with_its_default() -> None:
    result = serve_command("--help")
    assert result.returncode == 0
    assert "--max-requests" in result.stdout
    assert "(default: 32)" in result.stdout
    assert "api-keys" not in result.stdout


def test_sigterm_finishes_what_was_admitted_refuses_the_rest_and_exits_0(start: Start) -> None:
    server = start(deadline_seconds=120, drain_seconds=120)  # the machine may be busy
    results: list[object] = []
    threads = [ask(server, results) for _ in range(8)]
    eventually(lambda: in_flight(server) >= 4)
    admitted = in_flight(server)
    server.terminate()
    eventually(lambda: any("draining" in line for line in server.log))
    try:
        assert server.http.get("/v2/health/ready").status_code == 503
        refused = server.http.post("/v1/count", content=LARGE, headers=JPEG)
        assert refused.status_code == 503
        assert refused.json()["type"] == "urn:uepnet:problem:draining"
    except httpx.TransportError:
        pass  # it had already drained
    for thread in threads:
        thread.join(SOON)
    assert server.exit_code() == 0
    assert sum(result == 200 for result in results) >= admitted
    assert set(results) <= {200, 503}


def test_sigterm_is_heard_whichever_thread_the_kernel_gives_it_to(process: Start) -> None:
    server = process()
    threads = [int(entry.name) for entry in Path(f"/proc/{server.popen.pid}/task").iterdir()]
    os.kill(max(threads), signal.SIGTERM)
    assert max(threads) != server.popen.pid
    assert server.popen.wait(20) == 0


def test_what_outlives_the_drain_is_answered_counted_and_exit_code_1(start: Start) -> None:
    server = start(drain_seconds=0.2)
    results: list[object] = []
    threads = [ask(server, results) for _ in range(8)]
    eventually(lambda: in_flight(server) >= 4)
    server.terminate()
    assert server.exit_code() == 1
    for thread in threads:
        thread.join(SOON)
    assert len(results) == 8
    assert 503 in results
    assert 500 not in results
    assert any("admitted requests were lost" in line for line in server.log)


def test_a_second_signal_ends_at_once_and_without_a_traceback(start: Start) -> None:
    server = start()
    results: list[object] = []
    for _ in range(8):
        ask(server, results)
    eventually(lambda: in_flight(server) >= 4)
    server.terminate()
    eventually(lambda: any("draining" in line for line in server.log))
    server.terminate()
    assert server.exit_code() == 1  # what was admitted is lost
    eventually(lambda: any("stopped" in line for line in server.log))
    assert not [line for line in server.log if "Traceback" in line or "Error" in line]


def test_an_overload_is_turned_away_and_everyone_gets_an_answer(start: Start) -> None:
    server = start(max_requests=4)
    results: list[object] = []
    threads = [ask(server, results) for _ in range(40)]
    assert server.http.get("/v2/health/live").status_code == 200
    for thread in threads:
        thread.join(SOON)
    assert set(results) == {200, 429}
    assert results.count(200) >= 4
    assert in_flight(server) == 0
    assert server.http.post("/v1/count", content=LARGE, headers=JPEG).status_code == 200


def test_clients_that_are_killed_leave_nothing_behind(start: Start) -> None:
    server = start()
    lines = ("POST /v1/count HTTP/1.1", "Host: localhost", "Content-Type: image/jpeg", f"Content-Length: {len(LARGE)}")
    head = "\r\n".join((*lines, "", ""))
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head.encode() + LARGE)
    eventually(lambda: in_flight(server) == 0)
    eventually(lambda: "uepnet_queue_tiles 0.0" in server.http.get("/metrics").text)
    eventually(lambda: "uepnet_buffered_bytes 0.0" in server.http.get("/metrics").text)
    assert server.http.post("/v1/count", content=LARGE, headers=JPEG).status_code == 200


def test_a_reload_under_load_loses_no_request(start: Start, tmp_path: Path) -> None:
    toy_model(tmp_path / "next", version="next")
    server = start(models_dir=tmp_path, admin_key="the-admin-key")
    configured = server.http.get("/v1/model").json()["version"]
    results: list[object] = []
    threads = [ask(server, results) for _ in range(4)]
    eventually(lambda: in_flight(server) > 0)
    for body, version in (({"path": "next"}, "next"), ({}, configured), ({"path": "next"}, "next")):
        response = server.http.post("/v1/model/reload", json=body, headers={"X-API-Key": "the-admin-key"})
        assert response.json()["version"] == version
    for thread in threads:
        thread.join(SOON)
    assert results == [200] * 4


def test_json_logs_are_json_lines(process: Start) -> None:
    server = process(log_format="json")
    server.http.get("/v1/cameras")
    server.terminate()
    assert server.exit_code() == 0
    lines = [json.loads(line) for line in server.log]
    assert any(line["message"] == "request" and line["path"] == "/v1/cameras" for line in lines)


def test_whoever_connects_before_the_service_runs_waits_and_is_not_refused() -> None:
    with bind(Settings(port=0)) as listener, socket.create_connection(listener.getsockname(), timeout=SOON) as early:
        assert early.getpeername() == listener.getsockname()
