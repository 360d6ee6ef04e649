"""`uepnet video` as people run it: processes, real videos, real servers, and all that gets in the way."""

import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
import pytest
from support.memory import PRINT_PEAK_MIB
from support.recorders import command, lines, records, start
from support.servers import Process, Running, encoded, eventually
from support.toy import toy_model
from support.videos import noise, numbered, write_video

from uepnet.cli import main
from uepnet.model.counter import Counter
from uepnet.model.image import load_image
from uepnet.model.runtime import BUNDLED

ZONES = {"zones": [{"name": "left", "units": "fractions", "polygon": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}]}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zones.json").write_text(json.dumps(ZONES))
    return tmp_path


@pytest.fixture(scope="session")
def long_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 frames of changing grey, enough to be interrupted in."""
    pictures = [numbered(number % 25, 320, 240) for number in range(400)]
    return write_video(tmp_path_factory.mktemp("videos") / "long.mp4", pictures, preset="ultrafast")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Video = Callable[..., Done]


@pytest.fixture
def video(capfd: pytest.CaptureFixture[str]) -> Video:
    """Run the command in this process, to its end."""

    def run(*arguments: object) -> Done:
        capfd.readouterr()
        return Done(main(["video", *map(str, arguments)]), *capfd.readouterr())

    return run


def test_every_frame_is_counted_and_all_that_was_asked_for_is_written(
    video: Video, here: Path, model_dir: Path
) -> None:
    write_video(here / "station.mp4", [numbered(number) for number in range(10)])
    done = video(
        *("station.mp4", "--model", model_dir, "--zones", "zones.json", "--camera", "gate"),
        *("--csv", "a.csv", "--plot", "a.png", "--annotate", "a.mp4"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = records(here / "station.jsonl")
    assert [(record["frame"], record["timestamp"]) for record in found] == [(n, n / 25) for n in range(10)]
    assert found[3].keys() == {
        *("frame", "timestamp", "camera", "count", "range", "zones", "saturated", "scales", "familiarity"),
        *("unfamiliar", "warnings", "model"),
    }
    assert found[3]["zones"][0]["count"] == pytest.approx(found[3]["count"] / 2, rel=0.1)
    assert found[3]["model"] == {"name": "toy", "version": "1"}
    assert lines(here / "a.csv") == 11
    assert (here / "a.png").stat().st_size > 1000
    with av.open("a.mp4") as container:
        assert sum(1 for _ in container.decode(video=0)) == 10
    assert "10 frames counted in station.jsonl" in done.stdout
    peak = max(found, key=lambda record: record["count"])
    assert f"peak {peak['count']:.0f} people at 00:00 (frame {peak['frame']}), mean" in done.stdout


def test_a_busy_stretch_with_noisy_counts_is_one_alert(video: Video, here: Path, model_dir: Path) -> None:
    numbers = [2] * 6 + [10, 9, 4] * 5 + [2] * 8
    write_video(here / "a.mp4", [numbered(number) for number in numbers], [1000 * n for n in range(len(numbers))])
    video("a.mp4", "--model", model_dir)
    counts = [record["count"] for record in records(here / "a.jsonl")]
    limit = f"{counts[7] - 1:.0f}"
    options = ("a.mp4", "--model", model_dir, "--overwrite", "--quiet", "--alert", limit)
    reached, below = video(*options).stderr.splitlines()
    assert re.fullmatch(rf"uepnet: alert: {limit} people reached at 00:\d\d\.", reached)
    assert re.fullmatch(r"uepnet: alert: below [\d.]+ people at 00:\d\d; the peak was [\d.]+ people\.", below)
    assert len(video(*options, "--smooth", "0").stderr.splitlines()) == 10


def test_the_summary_tells_of_counts_that_may_be_wrong(video: Video, here: Path, model_dir: Path) -> None:
    white = np.full((48, 64, 3), 255, np.uint8)  # denser than the toy has seen
    write_video(here / "a.mp4", [numbered(4), white, white])
    done = video("a.mp4", "--model", model_dir)
    assert "warnings for 2 of 3 frames, such as: The scene is denser than the model has seen" in done.stdout


def test_counts_are_the_same_in_process_over_a_server_and_image_by_image(
    video: Video, here: Path, model_dir: Path, service: Running, long_video: Path
) -> None:
    video(long_video, "--model", model_dir, "--zones", "zones.json", "--every", "25", "--out", "here.jsonl")
    video(long_video, "--server", service.url, "--zones", "zones.json", "--every", "25", "--out", "there.jsonl")
    assert (here / "here.jsonl").read_bytes() == (here / "there.jsonl").read_bytes()
    counter = Counter(model_dir, device="cpu")
    with av.open(str(long_video)) as container:
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    expected = [counter.count(image).count for image in decoded[::25]]
    assert [record["count"] for record in records(here / "here.jsonl")] == expected


@pytest.mark.data
def test_the_mall_s_video_keeps_number_time_order_and_count(
    video: Video, here: Path, model_dir: Path, service: Running, real_data: Callable[[str], Path]
) -> None:
    mall = real_data("mall/frames")
    pictures = [load_image(path) for path in sorted(mall.iterdir())]
    assert len(pictures) == 300
    write_video(here / "mall.mp4", pictures, [500 * number for number in range(300)], preset="ultrafast")
    video("mall.mp4", "--model", model_dir, "--out", "here.jsonl")
    video("mall.mp4", "--server", service.url, "--out", "there.jsonl")
    assert (here / "here.jsonl").read_bytes() == (here / "there.jsonl").read_bytes()
    found = records(here / "here.jsonl")
    assert [(record["frame"], record["timestamp"]) for record in found] == [(n, n / 2) for n in range(300)]
    counter = Counter(model_dir, device="cpu")
    with av.open("mall.mp4") as container:
        for record, frame in zip(found, container.decode(video=0), strict=True):
            assert record["count"] == counter.count(frame.to_ndarray(format="rgb24")).count
    folder = video(mall, "--model", model_dir, "--rate", "2", "--end", "5", "--out", "folder.jsonl")
    assert folder.returncode == 0
    expected = [counter.count(picture).count for picture in pictures[:10]]
    assert [record["count"] for record in records(here / "folder.jsonl")] == expected


@pytest.mark.data
@pytest.mark.skipif(not BUNDLED.is_dir(), reason="there is no bundled model yet")
def test_the_bundled_model_counts_a_video_alike_everywhere(
    video: Video, here: Path, serve: Callable[..., Running], real_data: Callable[[str], Path]
) -> None:
    pictures = [load_image(path) for path in sorted(real_data("mall/frames").iterdir())[::30]]
    write_video(here / "mall.mp4", pictures)
    server = serve(model=None)
    assert video("mall.mp4", "--out", "here.jsonl").returncode == 0
    assert video("mall.mp4", "--server", server.url, "--out", "there.jsonl").returncode == 0
    assert (here / "here.jsonl").read_bytes() == (here / "there.jsonl").read_bytes()
    counter = Counter()
    with av.open("mall.mp4") as container:
        expected = [counter.count(frame.to_ndarray(format="rgb24")).count for frame in container.decode(video=0)]
    assert [record["count"] for record in records(here / "here.jsonl")] == expected


@pytest.mark.parametrize("where", ["in process", "over a server"])
def test_a_killed_client_resumes_to_the_same_file(
    video: Video, here: Path, model_dir: Path, service: Running, long_video: Path, where: str
) -> None:
    counting = ("--model", model_dir) if where == "in process" else ("--server", service.url)
    unbroken = video(long_video, *counting, "--out", "unbroken.jsonl")
    assert unbroken.returncode == 0
    for enough in (50, 100):
        client = start(long_video, *counting, "--out", "killed.jsonl", "--resume")
        eventually(lambda: lines(here / "killed.jsonl") >= enough)  # noqa: B023
        client.kill()
        client.communicate()
    assert 100 <= lines(here / "killed.jsonl") < 400, "it was to be killed in the middle"
    assert video(long_video, *counting, "--out", "killed.jsonl", "--resume").returncode == 0
    assert (here / "killed.jsonl").read_bytes() == (here / "unbroken.jsonl").read_bytes()


def test_a_server_killed_and_restarted_in_the_middle_loses_no_frame(
    video: Video, here: Path, model_dir: Path, process: Callable[..., Process], long_video: Path
) -> None:
    video(long_video, "--model", model_dir, "--out", "unbroken.jsonl")
    server = process()
    client = start(long_video, "--server", server.url, "--out", "counts.jsonl")
    for enough in (50, 100):
        eventually(lambda: lines(here / "counts.jsonl") >= enough)  # noqa: B023
        server.kill()
        server = process(port=server.port)
    _, complaints = client.communicate(timeout=120)
    assert client.returncode == 0, complaints
    assert "does not answer" in complaints
    assert (here / "counts.jsonl").read_bytes() == (here / "unbroken.jsonl").read_bytes()


def test_a_server_that_stays_away_ends_in_one_sentence_and_what_was_counted_is_kept(
    here: Path, process: Callable[..., Process], long_video: Path
) -> None:
    server = process()
    client = start(long_video, "--server", server.url, "--out", "counts.jsonl", "--patience", "1")
    eventually(lambda: lines(here / "counts.jsonl") >= 50)
    server.kill()
    _, complaints = client.communicate(timeout=60)
    assert client.returncode == 2
    assert f"uepnet: No service answers at {server.url}" in complaints
    assert "Traceback" not in complaints
    frames = [record["frame"] for record in records(here / "counts.jsonl")]
    assert frames == list(range(len(frames)))


def test_a_server_that_is_down_is_one_sentence(video: Video, here: Path, long_video: Path) -> None:
    done = video(long_video, "--server", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.startswith("uepnet: No service answers at http://127.0.0.1:1")
    assert done.stderr.count("\n") == 1
    assert not list(here.glob("*.jsonl"))


def test_a_truncated_video_is_counted_as_far_as_it_goes(video: Video, here: Path, model_dir: Path) -> None:
    path = write_video(here / "cut.mp4", noise(100), options={"movflags": "faststart"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = video("cut.mp4", "--model", model_dir)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cut.mp4 is cut off" in done.stderr
    assert 40 < lines(here / "cut.jsonl") < 60


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("text.mp4", "text.mp4 is not a video that can be read (invalid data found when processing input)"),
        ("nowhere.mp4", "nowhere.mp4 is not a video that can be read (no such file or directory)"),
        ("97", "/dev/video97 cannot be opened (no such file or directory)"),
        ("rtsp://127.0.0.1:1/stream", "rtsp://127.0.0.1:1/stream cannot be opened (connection refused)"),
        ("rtsp://[camera/stream", "SOURCE is not a valid address: it has an unmatched bracket"),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(
    video: Video, here: Path, model_dir: Path, source: str, words: str
) -> None:
    (here / "text.mp4").write_text("just some words\n" * 100)
    done = video(source, "--model", model_dir, "--no-retry")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"uepnet: {words}.\n"
    assert not list(here.glob("*.jsonl"))


def test_a_choice_without_a_frame_is_one_sentence(video: Video, here: Path, model_dir: Path) -> None:
    write_video(here / "a.mp4", [numbered(number) for number in range(3)])
    done = video("a.mp4", "--model", model_dir, "--start", "1:00", "--annotate", "seen.mp4", "--csv", "a.csv")
    assert done == (2, "", "uepnet: a.mp4 has no frame between --start and --end.\n")
    assert sorted(path.name for path in here.iterdir()) == ["a.mp4", "zones.json"]


def test_one_video_without_a_frame_does_not_keep_the_next_from_being_counted(
    video: Video, here: Path, model_dir: Path
) -> None:
    write_video(here / "short.mp4", [numbered(number) for number in range(3)])
    write_video(here / "long.mp4", [numbered(number) for number in range(30)])
    done = video("short.mp4", "long.mp4", "--model", model_dir, "--start", "1")
    assert (done.returncode, done.stderr) == (1, "uepnet: short.mp4 has no frame between --start and --end.\n")
    assert lines(here / "long.jsonl") == 5


@pytest.mark.parametrize("option", ["--csv", "--plot"])
def test_a_folder_that_is_missing_is_told_before_counting(video: Video, here: Path, option: str) -> None:
    done = video("a.mp4", option, "nowhere/a.png")
    assert done == (2, "", f"uepnet: {option} nowhere/a.png: there is no folder nowhere.\n")


def test_a_disk_that_fills_up_keeps_what_was_counted(here: Path, model_dir: Path, long_video: Path) -> None:
    def small_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    done = subprocess.run(
        command(long_video, "--model", model_dir, "--out", "counts.jsonl"),
        preexec_fn=small_disk,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "uepnet: counts.jsonl cannot be written further (File too large); the lines before are kept.\n"
    )
    kept = records(here / "counts.jsonl")
    assert [record["frame"] for record in kept] == list(range(len(kept))) != []


def test_an_interrupted_recording_is_closed_properly(here: Path, model_dir: Path, long_video: Path) -> None:
    client = start(
        *(long_video, "--model", model_dir, "--out", "counts.jsonl"),
        *("--csv", "counts.csv", "--plot", "counts.png", "--annotate", "counts.mp4"),
    )
    eventually(lambda: lines(here / "counts.jsonl") >= 20)
    client.send_signal(signal.SIGINT)
    told, complaints = client.communicate(timeout=60)
    assert (client.returncode, complaints) == (130, "")
    number = lines(here / "counts.jsonl")
    assert 20 <= number < 400
    assert lines(here / "counts.csv") == number + 1
    with av.open("counts.mp4") as container:
        assert abs(sum(1 for _ in container.decode(video=0)) - number) <= 1
    assert (here / "counts.png").exists()
    assert f"{number} frames counted" in told


def test_a_picture_that_cannot_be_read_leaves_a_gap_in_its_place(
    video: Video, here: Path, model_dir: Path, service: Running
) -> None:
    (here / "frames").mkdir()
    for number in range(4):
        (here / "frames" / f"{number}.png").write_bytes(encoded(numbered(number)))
    (here / "frames" / "2.png").write_bytes(b"no picture")
    done = video("frames", "--model", model_dir, "--rate", "1")
    assert done.returncode == 1
    found = records(here / "frames.jsonl")
    assert [record.get("count") is None for record in found] == [False, False, True, False]
    assert found[2]["gap"].startswith("the picture cannot be read: ")
    video("frames", "--server", service.url, "--rate", "1", "--out", "there.jsonl")
    assert records(here / "there.jsonl") == found
    assert video("frames", "--model", model_dir, "--rate", "1", "--resume").returncode == 1
    assert records(here / "frames.jsonl") == found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--every", "2"], "does not fit"),
        (["--camera", "gate"], "does not fit"),
        (["--zones", "zones.json"], "other zones"),
        (["--model", "other"], "with the model toy 1, this is toy 2"),
    ],
)
def test_a_recording_goes_on_only_as_it_began(
    video: Video, here: Path, model_dir: Path, options: list[str], words: str
) -> None:
    toy_model(here / "other", version="2")
    write_video(here / "a.mp4", [numbered(number) for number in range(10)])
    video("a.mp4", "--model", model_dir, "--end", "0.2")
    before = (here / "a.jsonl").read_bytes()
    done = video("a.mp4", "--model", model_dir, "--resume", *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert (here / "a.jsonl").read_bytes() == before


def test_a_recording_that_names_no_model_is_not_continued(video: Video, here: Path, model_dir: Path) -> None:
    write_video(here / "a.mp4", [numbered(number) for number in range(3)])
    line = json.dumps({"frame": 0, "timestamp": 0.0, "count": 1.0, "range": None}) + "\n"
    (here / "a.jsonl").write_text(line)
    done = video("a.mp4", "--model", model_dir, "--resume")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "does not name the model" in done.stderr
    assert (here / "a.jsonl").read_text() == line


def test_the_parts_of_a_resumed_video_become_one(video: Video, here: Path, model_dir: Path) -> None:
    write_video(here / "a.mp4", [numbered(number) for number in range(10)])
    video("a.mp4", "--model", model_dir, "--end", "0.2", "--annotate", "seen.mp4")
    assert video("a.mp4", "--model", model_dir, "--resume", "--annotate", "seen.mp4").returncode == 0
    with av.open("seen.mp4") as container:
        times = [frame.time for frame in container.decode(video=0)]
    assert times == pytest.approx([number / 25 for number in range(10)])
    assert not (here / "seen-2.mp4").exists()


@pytest.mark.parametrize("where", ["in process", "over a server"])
def test_memory_does_not_grow_with_the_video(here: Path, model_dir: Path, service: Running, where: str) -> None:
    counting = ["--model", str(model_dir)] if where == "in process" else ["--server", service.url]
    peaks = []
    for frames in (100, 1000):
        path = write_video(here / f"{frames}.mp4", [numbered(n % 25, 320, 240) for n in range(frames)])
        script = (
            "import sys\nfrom uepnet.cli import main\n"
            f"code = main(['video', {str(path)!r}, '--quiet', *{counting!r}])\n"
            f"{PRINT_PEAK_MIB}\nsys.exit(code)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        peaks.append(float(done.stdout))
    assert peaks[1] - peaks[0] < 20, f"{peaks} MiB"
