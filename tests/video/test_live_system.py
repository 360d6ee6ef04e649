"""Live counting against GStreamer's RTSP server, the way a network camera is read; needs Debian's packages."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.servers import eventually

from uepnet.video.recording import read_records

pytestmark = pytest.mark.system

SCRIPT = ROOT / "tests/support/rtsp_server.py"


class RtspServer:
    """Can be killed, and started again on its port."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"rtsp://127.0.0.1:{self.port}/camera"
        self.start()

    def start(self) -> None:
        command = ["/usr/bin/python3", str(SCRIPT), str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self.kill()
            pytest.fail("GStreamer's RTSP server does not start: see deploy/install-system-tests")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def camera() -> Iterator[RtspServer]:
    server = RtspServer()
    yield server
    server.kill()


def found(path: Path) -> list[dict[str, Any]]:
    return list(read_records(path)) if path.exists() else []


def test_an_rtsp_camera_that_is_cut_off_and_comes_back_leaves_one_gap(
    camera: RtspServer, model_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "gate.jsonl"
    command = [sys.executable, "-m", "uepnet", "video", camera.url, "--camera", "gate", "--model", str(model_dir)]
    with ExitStack() as stack:
        client = stack.enter_context(
            subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(client.kill)
        eventually(lambda: len(found(out)) >= 20)
        camera.kill()
        eventually(lambda: "gap" in found(out)[-1])
        before = len(found(out))
        camera.start()
        eventually(lambda: len(found(out)) >= before + 20)
        client.send_signal(signal.SIGINT)
        told, complaints = client.communicate(timeout=60)
    assert client.returncode == 0
    lost, back = complaints.splitlines()
    assert "the stream was lost" in lost and " is back after " in back
    records = found(out)
    assert sum("gap" in record for record in records) == 1
    assert all(record["count"] > 0 for record in records if "count" in record)
    counted = [record["frame"] for record in records if "count" in record]
    assert counted == sorted(set(counted))
    gap = next(number for number, record in enumerate(records) if "gap" in record)
    assert records[gap + 1]["timestamp"] - records[gap]["timestamp"] > 0.5
    assert "gaps: 1," in told


def test_frames_between_those_that_are_counted_are_told_as_dropped(
    camera: RtspServer, model_dir: Path, tmp_path: Path
) -> None:
    """25 frames a second come; one in flight at a time cannot lose track of which was counted."""
    out = tmp_path / "gate.jsonl"
    command = [sys.executable, "-m", "uepnet", "video", camera.url, "--model", str(model_dir), "--out", str(out)]
    done = subprocess.run([*command, "--end", "3"], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    records = found(out)
    numbers = [record["frame"] for record in records]
    for record, before in zip(records[1:], numbers, strict=False):
        assert record["frame"] - before - 1 == record["dropped"]
