"""`uepnet video` on a live stream: lost, resumed, and with a server that goes away."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.recorders import assert_numbered_upwards, lines, records, start
from support.servers import Process, eventually
from support.streams import CameraStream

from uepnet.cli import main


@pytest.fixture
def camera() -> Iterator[CameraStream]:
    camera = CameraStream(frames_per_second=20)
    yield camera
    camera.cut()


def test_a_live_stream_that_is_lost_leaves_a_gap_and_never_a_zero(
    tmp_path: Path, model_dir: Path, camera: CameraStream
) -> None:
    out = tmp_path / "gate.jsonl"
    client = start(camera.url, "--model", model_dir, "--camera", "gate", "--out", out)
    eventually(lambda: lines(out) >= 10)
    camera.cut()
    eventually(lambda: "gap" in records(out)[-1])
    before = lines(out)
    time.sleep(1)
    assert lines(out) == before, "while the stream is lost, nothing is counted"
    camera.start()
    eventually(lambda: lines(out) >= before + 10)
    client.send_signal(signal.SIGTERM)
    told, complaints = client.communicate(timeout=60)
    lost, back = complaints.splitlines()
    assert client.returncode == 0
    assert lost.startswith(f"uepnet: {camera.url}: the stream was lost (") and lost.endswith("; trying again.")
    assert back.startswith(f"uepnet: {camera.url} is back after ")
    found = records(out)
    assert sum("gap" in record for record in found) == 1
    assert all(record["count"] > 0 for record in found if "count" in record)
    assert all(record["time"].endswith("Z") and record["camera"] == "gate" for record in found)
    assert_numbered_upwards(found)
    assert "gaps: 1," in told


def test_a_resumed_live_recording_says_where_it_was_interrupted(
    tmp_path: Path, model_dir: Path, camera: CameraStream
) -> None:
    out = tmp_path / "a.jsonl"
    arguments = ["video", camera.url, "--model", str(model_dir), "--end", "1", "--fps", "5", "--out", str(out)]
    assert main(arguments) == 0
    first = records(out)
    assert 2 <= len(first) <= 6
    assert main([*arguments, "--resume"]) == 0
    found = records(out)
    assert found[: len(first)] == first
    assert found[len(first)]["gap"] == "the recording was interrupted"
    assert_numbered_upwards(found)


def test_a_live_stream_whose_server_goes_away_leaves_gaps_and_goes_on(
    tmp_path: Path, process: Callable[..., Process], camera: CameraStream
) -> None:
    server = process()
    out = tmp_path / "a.jsonl"
    client = start(camera.url, "--server", server.url, "--patience", "0.5", "--out", out)
    eventually(lambda: lines(out) >= 10)
    server.kill()
    eventually(lambda: "gap" in records(out)[-1])
    assert "the frame was not counted: no service answers" in records(out)[-1]["gap"]
    process(port=server.port)
    eventually(lambda: "count" in records(out)[-1])
    client.send_signal(signal.SIGINT)
    client.communicate(timeout=60)
    assert client.returncode == 0
