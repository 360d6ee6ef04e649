from typing import Any

from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.parser import text_string_to_metric_families

from uepnet.deploy.fleet import ReplicaReport, metrics_text, newer
from uepnet.service.schemas import Camera, ModelSummary

MODEL = ModelSummary(name="toy", version="1", precision="fp32", device="cpu")


def camera(name: str, time: float) -> Camera:
    shared: dict[str, Any] = {"range": None, "zones": [], "width": 8, "height": 8, "warnings": [], "request_id": "x"}
    return Camera(camera=name, count=time, time=time, model=MODEL, **shared)


def people(value: float) -> Metric:
    family = Metric("camera_people", "People", "gauge")
    family.add_sample("camera_people", {"camera": "gate"}, value)
    return family


def report(replica: str, ok: int) -> ReplicaReport:
    registry = CollectorRegistry()
    Counter("requests", "Requests", ["outcome"], registry=registry).labels("ok").inc(ok)
    return ReplicaReport(replica, [*registry.collect(), people(ok)], [])


def test_metrics_keep_replicas_apart_and_tell_of_a_camera_once() -> None:
    text = metrics_text([report("a", 1), report("b", 2)], [people(7)]).decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families), "a family must stay in one piece"
    found = {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}
    assert found[("requests_total", (("outcome", "ok"), ("replica", "a")))] == 1
    assert found[("requests_total", (("outcome", "ok"), ("replica", "b")))] == 2
    assert [value for (name, _), value in found.items() if name == "camera_people"] == [7]


def test_the_newest_count_of_a_camera_is_taken_over_and_nothing_older() -> None:
    known = [camera("gate", 5), camera("hall", 5)]
    reports = [
        ReplicaReport("a", [], [camera("gate", 6), camera("hall", 4)]),
        ReplicaReport("b", [], [camera("gate", 7), camera("roof", 1)]),
    ]
    assert newer(reports, known) == [camera("gate", 7), camera("roof", 1)]


def test_what_is_known_already_is_not_taken_over_again() -> None:
    known = [camera("gate", 5)]
    assert newer([ReplicaReport("a", [], known)], known) == []
