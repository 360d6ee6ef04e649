"""`uepnet watch` against real servers: sources and servers that go and come back leave gaps, never zeros."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.servers import Process, Running, encoded, eventually, grey
from support.videos import numbered, write_video

from uepnet.cli import main
from uepnet.model.cameras import CameraEntry
from uepnet.video.watch import Post, WatchedCamera, watch

Serve = Callable[..., Running]


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """A folder of pictures that differ."""
    folder = tmp_path / "frames"
    folder.mkdir()
    for index in range(6):
        (folder / f"{index}.png").write_bytes(encoded(grey(64, 64, 100 + index)))
    return folder


@contextmanager
def watching(server: str, folder: Path, **cameras: CameraEntry) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=watch, args=(cameras, server, folder, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def counted(server: Running | Process, camera: str) -> float | None:
    state = next(one for one in server.http.get("/v1/cameras").json()["cameras"] if one["camera"] == camera)
    return state["last_time"] if state["last_count"] else None


def known(server: Running) -> set[str]:
    return {one["camera"] for one in server.http.get("/v1/cameras").json()["cameras"]}


def test_all_sources_of_a_file_are_counted_again_and_again(serve: Serve, frames: Path) -> None:
    server = serve()
    one, two = CameraEntry(source="frames", fps=20), CameraEntry(source=str(frames), fps=20)
    with watching(server.url, frames.parent, one=one, two=two):
        eventually(lambda: server.metric("uepnet_images_total") >= 30)  # the folder holds six
    assert known(server) == {"one", "two"}


def test_a_source_that_is_down_is_tried_until_it_is_there(
    serve: Serve, frames: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    with caplog.at_level(logging.INFO, logger="uepnet.video"):
        post = Post(server.url)
        one = WatchedCamera("late", CameraEntry(source="later", fps=20), post, tmp_path, first_retry_seconds=0.05)
        time.sleep(0.5)
        assert known(server) == set()
        frames.rename(tmp_path / "later")
        eventually(lambda: one.sent >= 10)
        one.stop()
        one.join(10)
        post.close()
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("late")]
    assert len(told) == 2, told
    assert f"{tmp_path / 'later'} is not a video that can be read" in told[0]
    assert told[1] == "late: frames are counted"


def test_a_server_that_is_killed_and_comes_back_leaves_a_gap_and_no_zero(
    process: Callable[..., Process], frames: Path, tmp_path: Path
) -> None:
    history = f"sqlite:///{tmp_path / 'history.sqlite'}"
    server = process(history=history)
    file = tmp_path / "cameras.yml"
    file.write_text("cameras: {gate: {source: frames, fps: 10}}")
    command = [sys.executable, "-m", "uepnet", "watch", str(file), "--server", server.url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watcher:
        try:
            eventually(lambda: server.http.get("/v1/cameras").json()["cameras"])
            time.sleep(2)
            server.kill()
            killed = time.time()
            time.sleep(1.5)
            again = process(history=history, port=server.port)
            back = time.time()
            eventually(lambda: any(one["last_time"] > back for one in again.http.get("/v1/cameras").json()["cameras"]))
            time.sleep(1.5)
        finally:
            watcher.send_signal(signal.SIGTERM)
            told = watcher.communicate(timeout=30)[1]
    assert watcher.returncode == 0
    assert told.count("does not answer") == told.count("answers again") == 1, told
    (series,) = again.http.get("/v1/cameras/gate/history", params={"resolution": "raw"}).json()["series"]
    times = [point["time"] for point in series["points"]]
    assert all(point["mean"] > 0 for point in series["points"])
    assert [moment for moment in times if killed + 0.5 < moment < back - 0.5] == []
    assert min(times) < killed < back < max(times)
    assert killed - max(moment for moment in times if moment < killed) < 1.5


def test_a_refusal_is_said_once_and_tried_again(serve: Serve, frames: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(api_keys="a-key-of-the-server")
    with caplog.at_level(logging.INFO, logger="uepnet.video"):
        post = Post(server.url)
        entry = CameraEntry(source="frames", fps=20)
        one = WatchedCamera("gate", entry, post, frames.parent, first_retry_seconds=0.05)
        eventually(lambda: server.metric("uepnet_rejected_total", reason="unauthorised") >= 2)
        one.stop()
        one.join(20)
        post.close()
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("gate")]
    assert len(told) == 1
    assert "valid API key" in told[0]


def test_a_password_in_an_address_is_not_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.INFO, logger="uepnet.video"):
        post = Post("http://127.0.0.1:9")
        entry = CameraEntry(source="http://user:secret@127.0.0.1:9/picture.jpg")
        one = WatchedCamera("gate", entry, post, tmp_path)
        eventually(lambda: caplog.records)
        one.stop()
        one.join(20)
        post.close()
    assert "secret" not in caplog.text


def test_cameras_that_start_together_do_not_break_each_other(tmp_path: Path) -> None:
    """Threads that import the video library at the same time would."""
    write_video(tmp_path / "loop.mp4", [numbered(number) for number in range(5)])
    sources = ["loop.mp4", "rtsp://127.0.0.1:9/nothing"] * 8
    file = tmp_path / "cameras.yml"
    file.write_text("cameras:\n" + "".join(f"  {number}: {{source: '{one}'}}\n" for number, one in enumerate(sources)))
    command = [sys.executable, "-m", "uepnet", "watch", str(file), "--server", "http://127.0.0.1:9"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stderr is not None
        told = ""
        while "does not answer" not in told or "watching" not in told:  # a frame was read, and could not be sent
            told += watcher.stderr.readline()
        time.sleep(0.5)
        watcher.send_signal(signal.SIGTERM)
        told += watcher.communicate(timeout=30)[1]
    assert "Traceback" not in told


def test_what_is_not_installed_is_told_once_and_not_by_every_camera(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    (tmp_path / "cameras.yml").write_text("cameras: {gate: {source: 'rtsp://127.0.0.1:9/a'}}")
    assert main(["watch", str(tmp_path / "cameras.yml"), "--server", "http://127.0.0.1:9"]) == 2
    assert "pip install 'uepnet[video]'" in capsys.readouterr().err


def test_the_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cameras.yml"
    file.write_text("cameras: {gate: {source: a}, hall: {}}")
    assert main(["watch", str(file), "--check"]) == 0
    assert "2 cameras, 1 with a source: gate" in capsys.readouterr().out
    assert main(["watch", str(file), "--only", "none"]) == 2
    assert 'has no camera "none"' in capsys.readouterr().err
    file.write_text("cameras: {gate: {sauce: a}}")
    assert main(["watch", str(file)]) == 2
    assert "line 1" in capsys.readouterr().err
    file.write_text("cameras: {gate: {}}")
    assert main(["watch", str(file)]) == 2
    assert "no camera with a source" in capsys.readouterr().err
