"""The shipped Prometheus files in a real Prometheus, which scrapes the real service under traffic."""

import json
import math
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.paths import ROOT
from support.servers import Process, encoded, eventually, grey
from support.toy import toy_model

pytestmark = pytest.mark.system
DEPLOY = ROOT / "deploy"
SHIPPED = DEPLOY / "prometheus"
ZONES = [
    {"name": "doors", "units": "fractions", "polygon": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]},
    {"name": "stairs", "units": "fractions", "polygon": [[0.5, 0], [1, 0], [1, 1], [0.5, 1]]},
]


def promtool(*words: str) -> None:
    done = subprocess.run(["promtool", *words], cwd=SHIPPED, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_configuration() -> None:
    promtool("check", "config", "prometheus.yml")


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", *(str(path) for path in sorted(SHIPPED.glob("rules/*.yml"))))


def test_the_unit_tests_of_the_rules_pass() -> None:
    promtool("test", "rules", "tests/rules.yml")


class Traffic(threading.Thread):
    """Two cameras that send, one of them with zones, until it is stopped."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.done = url, threading.Event()
        self.people: dict[str, float] = {}
        self.images = 0

    def run(self) -> None:
        image = encoded(grey(256, 192, 200))
        with httpx.Client(base_url=self.url, timeout=60) as http:
            while not self.done.wait(0.1):
                parts = {"image": ("frame.png", image, "image/png"), "zones": (None, json.dumps({"zones": ZONES}))}
                self._note("entrance", http.post("/v1/count", files=parts, params={"camera": "entrance"}))
                self._note("hall", http.post("/v1/count", content=image, headers=PNG, params={"camera": "hall"}))

    def _note(self, camera: str, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.text
        self.people[camera] = answer.json()["count"]
        self.images += 1


PNG = {"Content-Type": "image/png"}


class Prometheus:
    def __init__(self, folder: Path, target: str) -> None:
        """The shipped files, byte for byte; only where the service is found is told in a file of its own."""
        config = folder / "prometheus"
        shutil.copytree(SHIPPED, config)
        (config / "targets/uepnet.yml").write_text(yaml.safe_dump([{"targets": [target]}]))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.popen = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
        )
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def up(self) -> bool:
        assert self.popen.poll() is None, "Prometheus ended"
        try:
            ready = self.http.get("/-/ready").status_code == 200
            return ready and self.values('up{job="uepnet"}') == [1]
        except httpx.TransportError:
            return False

    def ask(self, path: str, **params: str) -> Any:
        answer = self.http.get(f"/api/v1/{path}", params=params).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, query: str) -> list[float]:
        """The finite values of an instant query."""
        result = self.ask("query", query=query)
        pairs = [result["result"]] if result["resultType"] == "scalar" else [one["value"] for one in result["result"]]
        return [value for _, text in pairs if math.isfinite(value := float(text))]

    def close(self) -> None:
        self.popen.terminate()
        self.popen.wait(30)
        self.http.close()


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traffic]:
    service = Process(toy_model(tmp_path_factory.mktemp("model")), device="cpu")  # to it, bright grey is a crowd
    service.wait_until_ready()
    traffic = Traffic(service.url)
    traffic.start()
    eventually(lambda: len(traffic.people) == 2)
    yield traffic
    traffic.done.set()
    traffic.join(60)
    service.close()


@pytest.fixture(scope="module")
def prometheus(traffic: Traffic, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), traffic.url.removeprefix("http://"))
    try:
        eventually(prometheus.up)
        eventually(lambda: prometheus.values('uepnet:seconds:p95{stage="total"}'))
        yield prometheus
    finally:
        prometheus.close()


def rules(kind: str) -> list[dict[str, Any]]:
    files = [yaml.safe_load(path.read_text()) for path in sorted(SHIPPED.glob("rules/*.yml"))]
    return [rule for file in files for group in file["groups"] for rule in group["rules"] if kind in rule]


def panel_queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana/dashboards/uepnet.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("rule", rules("record"), ids=lambda rule: f"{rule['record']} {rule.get('labels', '')}")
def test_a_recording_rule_records(prometheus: Prometheus, rule: dict[str, Any]) -> None:
    matchers = ",".join(f'{name}="{value}"' for name, value in rule.get("labels", {}).items())
    eventually(lambda: prometheus.values(f"{rule['record']}{{{matchers}}}"))


@pytest.mark.parametrize("rule", rules("alert"), ids=lambda rule: rule["alert"])
def test_an_alert_has_data_on_the_left_of_its_comparison(prometheus: Prometheus, rule: dict[str, Any]) -> None:
    left, _, right = re.split(r" (==|>|<) ", rule["expr"])
    assert float(right) >= 0
    eventually(lambda: prometheus.values(left))


def test_prometheus_evaluates_every_rule_without_complaint(prometheus: Prometheus) -> None:
    found = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(found) == len(rules("record")) + len(rules("alert"))
    for rule in found:
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule["name"]


@pytest.mark.parametrize("query", panel_queries())
def test_a_panel_has_data(prometheus: Prometheus, query: str) -> None:
    eventually(lambda: prometheus.values(query.replace("$camera", ".+")))


def test_people_per_camera_are_those_that_the_service_answered(prometheus: Prometheus, traffic: Traffic) -> None:
    for camera, people in traffic.people.items():
        (shown,) = prometheus.values(f'uepnet_camera_people{{camera="{camera}"}}')
        assert shown == pytest.approx(people)


def test_throughput_is_what_was_sent(prometheus: Prometheus, traffic: Traffic) -> None:
    """A rate over five minutes of a process that is younger: its images, over all of the five minutes."""

    def near() -> bool:
        (shown,) = prometheus.values("uepnet:images:rate5m") or [0.0]
        return 0.5 * traffic.images < 300 * shown < 1.2 * traffic.images

    eventually(near)


def test_a_zone_over_its_limit_raises_the_alert(prometheus: Prometheus) -> None:
    def raised() -> bool:
        return any(
            alert["labels"]["alertname"] == "UepnetZoneOverLimit" for alert in prometheus.ask("alerts")["alerts"]
        )

    eventually(raised)
