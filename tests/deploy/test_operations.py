"""docs/operations.md says all that there is to say, and nothing that is not so."""

import math
import re
from typing import Any

import pytest
import yaml
from support.dockerfile import read_stages
from support.paths import ROOT

from uepnet.service.cameras.latest import Cameras
from uepnet.service.metrics import Metrics
from uepnet.service.settings import PREFIX, Settings

TEXT = (ROOT / "docs/operations.md").read_text()


def section(title: str) -> str:
    """The text below a heading, down to the next one of its level."""
    level = re.search(rf"^(#+) {re.escape(title)}$", TEXT, re.MULTILINE)
    assert level, f"there is no section {title}"
    rest = TEXT[level.end() :]
    end = re.search(rf"^#{{1,{len(level[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def shown(value: Any) -> str:
    if value is None or value == ():
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_table() -> str:
    rows = [
        f"| `{PREFIX}{name.upper()}` | {shown(field.default)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["| variable | default | what |", "|---|---|---|", *rows])


def test_the_table_of_settings_is_the_code_s() -> None:
    assert settings_table() in section("Settings"), f"put this table there:\n{settings_table()}"


def test_every_metric_is_listed_with_its_labels_and_no_other() -> None:
    metrics = Metrics()
    metrics.add(Cameras(Settings(), metrics))
    metrics.watch_device_memory(lambda: (1, 2))
    suffix = {"counter": "_total", "info": "_info"}
    families = [family for family in metrics.registry.collect() if family.name.startswith("uepnet_")]
    exported = {family.name + suffix.get(family.type, "") for family in families}
    listed = set(re.findall(r"`(uepnet_\w+)`", section("Metrics")))
    assert exported <= listed
    # The control room adds others once it has a history, alerts and channels: each is named in its code.
    code = "".join(path.read_text() for path in sorted((ROOT / "service/cameras").glob("*.py")))
    for name in listed - exported:
        assert name.removeprefix("uepnet_").removesuffix("_total") in code, name


def test_every_alert_is_explained_with_what_to_do() -> None:
    groups = yaml.safe_load((ROOT / "deploy/prometheus/rules/alerts.yml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    explained = set(re.findall(r"^### (Uepnet\w+)$", section("Alerts"), re.MULTILINE))
    assert explained == alerts
    for alert in alerts:
        assert "Do:" in section(alert), f"{alert} does not say what to do"


def test_every_recorded_series_is_named() -> None:
    groups = yaml.safe_load((ROOT / "deploy/prometheus/rules/recording.yml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        assert f"`{rule['record']}`" in TEXT, rule["record"]


MADE_BY_OPERATORS = {"deploy/uepnet.env", "deploy/models/NAME", "deploy/prometheus/uepnet.key"}
NAMED = set(re.findall(r"`((?:deploy|docs|tests|service)/[\w./-]+)`", TEXT)) - MADE_BY_OPERATORS


@pytest.mark.parametrize("path", sorted(NAMED))
def test_every_file_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_target_of_the_dockerfile_has_its_size_stated() -> None:
    targets = [name for name in read_stages(ROOT / "Dockerfile") if name in ("cpu", "gpu")]
    for target in targets:
        assert re.search(rf"^\| `{target}` \|.* [MG]B", section("Images"), re.MULTILINE)


def test_the_capacity_plan_adds_up() -> None:
    plan = (ROOT / "docs/capacity.md").read_text()
    rows = re.findall(r"^\| (?:T4|L4|L40S|H100 SXM) \| (.*) \|$", plan, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        peak, light, light_gpus, vgg, vgg_gpus = (int(cell.replace(",", "")) for cell in row.split(" | "))
        for share, flop, images, gpus in ((0.10, 54.1e9, light, light_gpus), (0.35, 683.0e9, vgg, vgg_gpus)):
            rate = share * peak * 1e12 / flop
            assert images == round(rate)
            assert gpus == math.ceil(10_000 / (0.7 * rate))
