"""The service as Ray replicas, on a local cluster with the shipped configuration; only GPUs are taken out of it."""

import copy
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from support.paths import ROOT
from support.ray_cluster import Cluster
from support.servers import encoded, eventually, grey, running
from support.toy import toy_model

from uepnet.service.settings import Settings

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]
PATIENCE = 240.0  # a replica is a process that imports Ray: half a minute on a busy core
SHIPPED: dict[str, Any] = yaml.safe_load((ROOT / "deploy/ray_cluster.yml").read_text())
PNG = {"Content-Type": "image/png"}
ZONES = json.dumps({"zones": [{"name": "left", "units": "fractions", "polygon": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}]})


class Fleet:
    def __init__(self, cluster: Cluster, models: dict[str, Path]) -> None:
        self.cluster, self.models = cluster, models
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.http = httpx.Client(base_url=self.url, timeout=60)

    def deploy(self, version: str, **scaling: float) -> None:
        config = copy.deepcopy(SHIPPED)
        config["http_options"] |= {"host": "127.0.0.1", "port": int(self.url.rpartition(":")[2])}
        (application,) = config["applications"]
        application["args"] |= {"insecure": True, "device": "cpu", "model": str(self.models[version])}
        (deployment,) = application["deployments"]
        deployment["ray_actor_options"] = {"num_cpus": 1}
        deployment["autoscaling_config"] |= scaling
        self.cluster.deploy(config)

    def is_up(self) -> bool:
        try:
            return self.http.get("/v2/health/ready").status_code == 200
        except httpx.TransportError:
            return False

    def count(self, image: bytes, camera: str | None = None) -> httpx.Response:
        return self.http.post("/v1/count", content=image, headers=PNG, params={"camera": camera} if camera else {})

    def labelled(self) -> set[str]:
        """The replicas that /metrics speaks of."""
        return set(re.findall(r'uepnet_ready\{replica="(\w+)"\}', self.http.get("/metrics").text))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    models = {version: toy_model(tmp_path_factory.mktemp("model"), version=version) for version in ("1", "2")}
    models["broken"] = tmp_path_factory.mktemp("model")
    cluster = Cluster(tmp_path_factory.mktemp("ray"), cores=2)
    fleet = Fleet(cluster, models)
    try:
        fleet.deploy("1", min_replicas=2, max_replicas=2)
        eventually(fleet.is_up, PATIENCE)
        eventually(lambda: len(fleet.labelled()) == 2, PATIENCE)
        yield fleet
    finally:
        fleet.http.close()
        cluster.close()


class Load:
    """Clients that ask again and again; what each got, and when."""

    def __init__(self) -> None:
        self.answers: list[tuple[float, float, int, str]] = []  # (sent, answered, status, model version)
        self.done = threading.Event()

    def versions(self) -> set[str]:
        return {version for *_, status, version in self.answers if status == 200}

    def failures(self) -> list[tuple[float, float, int, str]]:
        return [answer for answer in self.answers if answer[2] != 200]


@contextmanager
def load(url: str, clients: int) -> Iterator[Load]:
    load, image = Load(), encoded(grey(512, 512, 180))

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while not load.done.wait(0.05):  # leaves the cores room for replicas that start meanwhile
                sent = time.monotonic()
                answer = http.post("/v1/count", content=image, headers=PNG)
                version = answer.json()["model"]["version"] if answer.status_code == 200 else ""
                load.answers.append((sent, time.monotonic(), answer.status_code, version))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(load.answers) > 4 * clients)
        yield load
    finally:
        load.done.set()
        for thread in threads:
            thread.join(60)


def test_answers_are_those_of_a_single_process(fleet: Fleet) -> None:
    generator = np.random.default_rng(0)
    images = [encoded(generator.integers(0, 256, (height, 300, 3), np.uint8)) for height in (64, 200, 333, 700)]
    with running(Settings(port=0, model=fleet.models["1"])) as single:
        for image in images * 2:
            parts = {"image": ("x.png", image, "image/png"), "zones": (None, ZONES)}
            one = single.http.post("/v1/count", files=parts, params={"include": "map"}).json()
            many = fleet.http.post("/v1/count", files=parts, params={"include": "map"}).json()
            for answer in (one, many):
                del answer["timings_ms"], answer["request_id"]
            assert many == one
        wrong = fleet.count(b"no image")
        assert (wrong.status_code, wrong.json()["type"]) == (422, "urn:uepnet:problem:wrong-image")


def test_every_replica_works_and_metrics_tell_of_each(fleet: Fleet) -> None:
    with load(fleet.url, 4):
        pass
    eventually(lambda: len(fleet.labelled()) == 2)

    def shares() -> list[float]:
        text = fleet.http.get("/metrics").text
        return [float(value) for value in re.findall(r"^uepnet_images_total\{replica=.*\} (.*)$", text, re.MULTILINE)]

    eventually(lambda: len(shares()) == 2 and min(shares()) > 0)


def test_a_camera_is_known_to_all_with_its_newest_count(fleet: Fleet) -> None:
    for brightness in range(40, 240, 10):
        newest = fleet.count(encoded(grey(64, 64, brightness)), camera="gate").json()["count"]
    time.sleep(1.1)  # longer than the news of the others may be old
    for _ in range(6):
        cameras = {one["camera"]: one["count"] for one in fleet.http.get("/v1/cameras").json()["cameras"]}
        assert cameras["gate"] == newest
        shown = re.findall(
            r'^uepnet_camera_people\{camera="gate"\} (.*)$', fleet.http.get("/metrics").text, re.MULTILINE
        )
        assert [float(value) for value in shown] == [newest]


def test_a_stream_of_events_hears_of_frames_that_other_replicas_counted(fleet: Fleet) -> None:
    heard: list[str] = []
    cameras = {f"stream-{number}" for number in range(8)}
    with httpx.stream("GET", f"{fleet.url}/v1/events", timeout=60) as stream:
        lines = stream.iter_lines()
        next(lines)
        for camera in sorted(cameras):
            assert fleet.count(encoded(grey(64, 64)), camera).status_code == 200
        for line in lines:
            if line.startswith("data: "):
                heard.append(json.loads(line.removeprefix("data: "))["camera"])
            if cameras <= set(heard):
                break


def test_a_reload_is_refused_because_it_would_reach_one_replica(fleet: Fleet) -> None:
    assert fleet.http.post("/v1/model/reload").status_code == 409


def test_a_killed_replica_takes_only_its_own_requests_along_and_comes_back(fleet: Fleet) -> None:
    clients = 6
    before = fleet.cluster.replicas()
    with load(fleet.url, clients) as under:
        killed_at = time.monotonic()
        killed = fleet.cluster.kill_a_replica()
        noticed_at = time.monotonic()
        (survivor,) = before - {killed}
        eventually(lambda: len(fleet.cluster.replicas() - {killed}) == 2, PATIENCE)
        eventually(lambda: len(fleet.labelled() - {killed}) == 2, PATIENCE)
        again = len(under.answers)
        eventually(lambda: len(under.answers) > again + 4 * clients)
    text = fleet.http.get("/metrics").text
    outcomes = re.findall(rf'uepnet_requests_total\{{outcome="(\w+)",replica="{survivor}",route="/v1/count"\}}', text)
    assert "failed" not in outcomes and "expired" not in outcomes and "cancelled" not in outcomes
    # A client has one request under way: at most one of each was in the killed replica, sent before it died.
    assert len(under.failures()) <= clients
    assert all(sent <= noticed_at and answered >= killed_at for sent, answered, *_ in under.failures())


def test_a_new_model_is_rolled_out_under_load_without_a_lost_request(fleet: Fleet) -> None:
    with load(fleet.url, 4) as under:
        assert under.versions() == {"1"}
        fleet.deploy("2", min_replicas=2, max_replicas=2)
        eventually(lambda: "2" in under.versions(), PATIENCE)
        eventually(lambda: {version for *_, version in under.answers[-20:]} == {"2"}, PATIENCE)
    assert under.failures() == []


def test_a_model_that_cannot_be_loaded_is_not_rolled_out_and_a_replica_goes_on(fleet: Fleet) -> None:
    with load(fleet.url, 2) as under:
        fleet.deploy("broken", min_replicas=2, max_replicas=2)
        eventually(lambda: fleet.cluster.status().startswith("DEPLOY_FAILED"), 2 * PATIENCE)  # after six attempts
        after = len(under.answers)
        eventually(lambda: len(under.answers) > after + 20)
        fleet.deploy("2", min_replicas=2, max_replicas=2)
        eventually(lambda: fleet.cluster.status().startswith("RUNNING") and len(fleet.labelled()) == 2, PATIENCE)
    assert under.failures() == []


def test_waiting_requests_bring_a_second_replica(fleet: Fleet) -> None:
    quick = {"upscale_delay_s": 1, "downscale_delay_s": 2, "look_back_period_s": 2}
    fleet.deploy("2", min_replicas=1, max_replicas=2, target_ongoing_requests=1, **quick)
    eventually(lambda: len(fleet.cluster.replicas()) == 1, PATIENCE)
    with load(fleet.url, 6) as under:
        eventually(lambda: len(fleet.labelled()) == 2, PATIENCE)
    assert under.failures() == []


@pytest.mark.parametrize(
    ("call", "environment", "complaint"),
    [
        ("build({'replicas': 'two'})", {}, "replicas is a number, not 'two'."),
        ("replica_settings({})", {}, "Behind Ray the service needs keys: set UEPNET_API_KEYS on every node"),
        ("build({'max_requests': 0})", {}, "--max-requests = 0"),
        ("build({'modle': '/models/a'})", {}, "modle"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(call: str, environment: dict[str, str], complaint: str) -> None:
    script = f"from uepnet.deploy.ray_serve import build, replica_settings\n{call}"
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, capture_output=True, text=True, timeout=200
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("uepnet.model.errors.InputError") and complaint in last
