"""Rules and dashboard against the metrics that the service has. With a real Prometheus: test_prometheus.py."""

import itertools
import json
import re
from typing import Any

import pytest
import yaml
from support.paths import ROOT

from uepnet.service.cameras.latest import Cameras
from uepnet.service.metrics import Metrics
from uepnet.service.settings import Settings

DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/uepnet.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for path in sorted((DEPLOY / "prometheus/rules").glob("*.yml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
ALERTS = [rule for rule in RULES if "alert" in rule]
NAME = re.compile(r"\b(?:uepnet|process|python|up)[a-z0-9_:]*(?=[\s{(\[)]|$)")


def exported() -> set[str]:
    """Every name that a scrape can return."""
    metrics = Metrics()
    metrics.add(Cameras(Settings(), metrics))
    metrics.watch_device_memory(lambda: (1, 2))
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"]}
    names = {"up"}
    for family in metrics.registry.collect():
        names |= {family.name + suffix for suffix in suffixes.get(family.type, [""])}
    return names


def test_every_rule_and_every_panel_speaks_of_metrics_that_exist() -> None:
    known = exported() | RECORDED
    for expression in [*QUERIES, *(rule["expr"] for rule in RULES)]:
        text = re.sub(r'"[^"]*"', '""', expression)
        names = {name for name in NAME.findall(text) if name != "uepnet"}
        assert names or expression.startswith("vector("), f"no metric in {expression}"
        assert names <= known, f"{names - known} in {expression}"


def test_every_recorded_series_is_used() -> None:
    readers = " ".join([*QUERIES, *(rule["expr"] for rule in RULES)])
    for name in RECORDED:
        assert re.search(rf"{name}(?![\w:])", readers), f"{name} is recorded for nobody"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_has_a_summary_a_severity_and_a_unit_test_in_which_it_fires(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert alert["annotations"]["summary"].endswith(".")
    tests = yaml.safe_load((DEPLOY / "prometheus/tests/rules.yml").read_text())["tests"]
    cases = [case for test in tests for case in test.get("alert_rule_test", [])]
    assert any(case["alertname"] == alert["alert"] and case.get("exp_alerts") for case in cases)


def test_panels_have_their_own_places() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for a, b in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        apart_x = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        apart_y = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart_x or apart_y
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_panels_ask_the_chosen_prometheus_and_use_variables_that_exist() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert set(re.findall(r"\$\{?(\w+)", target["expr"])) <= variables


@pytest.mark.parametrize(
    "shown", ["camera_people", "zone_people", "seconds:p95", "images:rate5m", "queue_tiles", "batch_tiles:mean5m"]
)
def test_the_dashboard_shows(shown: str) -> None:
    assert any(shown in query for query in QUERIES)
