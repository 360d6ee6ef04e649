"""Counting a folder with Ray Data, on a cluster of this machine: same counts, nothing lost, nothing reachable."""

import csv
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.servers import eventually
from support.toy import toy_model

from uepnet.model.counter import Counter

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
IMAGES = 120


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ with sub-folders and one file that is no image, and a model."""
    here = tmp_path_factory.mktemp("bulk")
    toy_model(here / "model")
    for number in range(IMAGES):
        path = here / "photos" / str(number % 3) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((64, 96, 3), number * 2, np.uint8)).save(path)
    (here / "photos" / "bad.jpg").write_bytes(b"no image")
    return here


def start(here: Path, out: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "uepnet.deploy.ray_count", "photos", "--out", out, "--model", str(here / "model")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [*command, "--part", "8", "--workers", "2"],
        cwd=here,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(folder: Path) -> list[dict[str, str]]:
    return [row for part in folder.glob("part-*.csv") for row in rows_of(part)]


def rows_of(part: Path) -> list[dict[str, str]]:
    with part.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from descendants(child)


def workers(pid: int) -> list[int]:
    names = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in descendants(pid)}
    return [child for child, name in names.items() if b"PartCounter" in name]


def assert_complete(here: Path, out: str) -> None:
    """Every image once, with the count of one process; the bad one with its error."""
    found = rows(here / out)
    names = [row["path"] for row in found]
    assert len(names) == len(set(names)) == IMAGES + 1
    counter = Counter(here / "model", threads=1)
    for row in found:
        if row["path"].endswith("bad.jpg"):
            assert row["count"] == "" and row["error"]
        else:
            assert float(row["count"]) == counter.count(row["path"]).count
    assert not list((here / out).glob(".*.partial"))


def test_the_counts_are_those_of_one_process_and_a_second_run_continues(here: Path) -> None:
    job = start(here, "out")
    told, complaints = job.communicate(timeout=300)
    assert job.returncode == 1, complaints
    assert told.startswith(f"{IMAGES} counted, 1 failed: ")
    assert_complete(here, "out")
    lost = sorted((here / "out").glob("part-*.csv"))[0]
    missing = sum(row["count"] != "" for row in rows_of(lost))
    lost.unlink()
    job = start(here, "out")
    told, complaints = job.communicate(timeout=300)
    assert told.startswith(f"{missing} counted ({IMAGES - missing} more before)"), complaints
    assert_complete(here, "out")


def test_a_killed_worker_loses_nothing_and_all_ports_are_on_loopback(here: Path) -> None:
    job = start(here, "killed")
    eventually(lambda: len(workers(job.pid)) > 0 or job.poll() is not None, 200)
    open_ports = [address for pid in descendants(job.pid) for address in listening(pid)]
    assert open_ports and set(open_ports) <= {"127.0.0.1", "::1"}
    os.kill(workers(job.pid)[0], signal.SIGKILL)
    _, complaints = job.communicate(timeout=400)
    assert job.returncode == 1, complaints
    assert_complete(here, "killed")


def listening(pid: int) -> Iterator[str]:
    """The addresses on which a process listens, from /proc."""
    try:
        links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    for table, family, size in (("tcp", socket.AF_INET, 4), ("tcp6", socket.AF_INET6, 16)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                packed = bytes.fromhex(fields[1].partition(":")[0])
                words = b"".join(packed[at : at + 4][::-1] for at in range(0, size, 4))
                yield socket.inet_ntop(family, words).removeprefix("::ffff:")


def test_what_is_wrong_is_one_sentence(here: Path) -> None:
    command = [sys.executable, "-m", "uepnet.deploy.ray_count", "nowhere", "--out", "there"]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (2, "ray_count: nowhere is not a folder.\n")
