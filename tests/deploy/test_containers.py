"""The Dockerfile and the compose file, as far as they can be checked without a container engine."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from pydantic import ValidationError
from support.dockerfile import lineage, read_stages
from support.paths import ROOT
from support.servers import running
from support.toy import toy_model

from uepnet.deploy.requirements import requirements
from uepnet.service.settings import Settings

BIN = Path(sys.executable).parent
STAGES = read_stages(ROOT / "Dockerfile")
TARGETS = ("cpu", "gpu")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def copied() -> list[str]:
    """Every path that is copied from the build context."""
    copies = [rest.split() for stage in STAGES.values() for rest in stage.all("COPY")]
    return [source for words in copies if not words[0].startswith("--from") for source in words[:-1]]


def healthcheck() -> list[str]:
    (check,) = STAGES["base"].all("HEALTHCHECK")
    command: list[str] = json.loads(check[check.index("[") :])
    return [sys.executable, *command[1:]]


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = subprocess.run([BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", copied())
def test_every_copied_path_is_there_and_not_ignored(path: str) -> None:
    assert list(ROOT.glob(path)), f"{path} does not exist"
    ignored = [line.rstrip("/") for line in (ROOT / ".dockerignore").read_text().split()]
    assert not any(fnmatch(path, pattern) for pattern in ignored), f"{path} is kept out of the build by .dockerignore"


def test_every_package_is_copied_into_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = set(project["tool"]["setuptools"]["package-dir"].values())
    assert folders <= {path.partition("/")[0] for path in copied()}


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_a_numbered_user_who_owns_nothing(target: str) -> None:
    last, user = STAGES[target].instructions[-1]
    assert last == "USER"
    assert all(int(number) >= 10_000 for number in user.split(":"))


@pytest.mark.parametrize("target", TARGETS)
def test_the_environment_of_an_image_is_valid_settings(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [word for stage in lineage(STAGES, target) for rest in stage.all("ENV") for word in rest.split()]
    given = dict(word.split("=", 1) for word in words if word.startswith("UEPNET_"))
    for name in list(os.environ):
        if name.startswith("UEPNET_"):
            monkeypatch.delenv(name)
    for name, value in given.items():
        assert name.removeprefix("UEPNET_").lower() in Settings.model_fields
        monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match="UEPNET_INSECURE=1"):
        Settings()  # an image listens on all interfaces: it does not start without keys
    monkeypatch.setenv("UEPNET_API_KEYS", "a-key-of-the-test")
    settings = Settings()
    assert (settings.host, settings.port) == ("0.0.0.0", int(STAGES["base"].all("EXPOSE")[0]))
    assert settings.device == {"cpu": "auto", "gpu": "cuda"}[target]
    assert str(settings.models_dir) == STAGES["base"].all("VOLUME")[0]


@pytest.mark.parametrize("extras", [["serve", "cpu", "openvino"], ["serve", "gpu"]])
def test_the_dependency_layer_has_what_the_wheel_will_ask_for(extras: list[str]) -> None:
    asked = [Requirement(text) for text in importlib.metadata.requires("uepnet") or []]
    wanted = {
        (need.name, str(need.specifier), frozenset(need.extras))
        for need in asked
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)
    }
    found = [Requirement(text) for text in requirements(ROOT / "pyproject.toml", extras)]
    assert {(need.name, str(need.specifier), frozenset(need.extras)) for need in found} == wanted


@pytest.mark.parametrize("keys", [(), ("a-key-of-the-test",)])
def test_the_health_check_passes_on_a_live_service_with_or_without_keys(keys: tuple[str, ...], tmp_path: Path) -> None:
    with running(Settings(port=0, model=toy_model(tmp_path), api_keys=keys)) as service:
        environment = os.environ | {"UEPNET_PORT": str(service.port)}
        assert subprocess.run(healthcheck(), env=environment, capture_output=True).returncode == 0


def test_the_health_check_fails_where_nothing_listens() -> None:
    environment = os.environ | {"UEPNET_PORT": "9"}
    assert subprocess.run(healthcheck(), env=environment, capture_output=True).returncode != 0


def test_the_compose_file_keeps_to_the_compose_schema() -> None:
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", ROOT / "docker-compose.yml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("profile", TARGETS)
def test_a_profile_starts_one_service_that_prometheus_finds(profile: str) -> None:
    services = [one for one in COMPOSE["services"].values() if profile in one["profiles"]]
    (ours,) = [one for one in services if "build" in one]
    assert ours["build"]["target"] == profile and ours["image"] == f"uepnet:{profile}"
    assert profile in STAGES
    (group,) = yaml.safe_load((ROOT / "deploy/prometheus/targets/uepnet.yml").read_text())
    assert group["targets"] == [f"{ours['networks']['default']['aliases'][0]}:8000"]
    assert len(services) == 3


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_of_the_compose_file_is_shut_in(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    for volume in service["volumes"]:
        source, _, rest = volume.partition(":")
        if source.startswith("./"):
            assert (ROOT / source).is_dir() and rest.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", ["uepnet-cpu", "uepnet-gpu"])
def test_the_service_runs_without_keys_only_behind_a_port_of_this_machine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = COMPOSE["services"][name]
    given = {"host": "0.0.0.0", "insecure": service["environment"]["UEPNET_INSECURE"]}
    default = re.fullmatch(r"\$\{UEPNET_ALLOWED_HOSTS:-(.*)\}", service["environment"]["UEPNET_ALLOWED_HOSTS"])
    assert default
    settings = Settings(**given, allowed_hosts=default[1])
    assert service["networks"]["default"]["aliases"] == list(settings.allowed_hosts)
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_service_gets_the_time_it_needs_to_drain_and_the_memory_of_its_settings() -> None:
    unit = (ROOT / "deploy/systemd/uepnet.service").read_text()
    given = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    settings = Settings()
    service = COMPOSE["services"]["uepnet-cpu"]
    for grace in (service["stop_grace_period"].removesuffix("s"), given["TimeoutStopSec"]):
        assert float(grace) >= settings.drain_seconds + settings.send_seconds + 10
    assert service["mem_limit"] == "${UEPNET_MEMORY:-8g}"
    assert given["MemoryMax"] == "8G"
    assert int(given["LimitNOFILE"]) > 2 * settings.max_connections


def test_grafana_is_provisioned_with_the_prometheus_and_the_dashboard_beside_it() -> None:
    volumes = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"])
    provisioning = ROOT / "deploy/grafana/provisioning"
    assert volumes["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in COMPOSE["services"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/uepnet.yml").read_text())["providers"]
    assert volumes["./deploy/grafana/dashboards"] == provider["options"]["path"]


def test_alerts_reach_the_alertmanager_of_the_compose_file() -> None:
    service = COMPOSE["services"]["alertmanager"]
    folder, inside = service["volumes"][0].split(":")[:2]
    assert f"--config.file={inside}/alertmanager.yml" in service["command"]
    rules = yaml.safe_load((ROOT / folder / "alertmanager.yml").read_text())
    receivers = {receiver["name"] for receiver in rules["receivers"]}
    assert {rules["route"]["receiver"], *(route["receiver"] for route in rules["route"]["routes"])} == receivers
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    ((found,),) = [one["dns_sd_configs"] for one in scraped["alerting"]["alertmanagers"]]
    assert found["names"] == ["alertmanager"] and service["ports"] == [f"127.0.0.1:{found['port']}:{found['port']}"]
