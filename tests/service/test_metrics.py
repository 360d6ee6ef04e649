"""Metrics: the documented names are the ones that exist, and they tell the truth."""

import re
from collections.abc import Callable

from support.servers import HeldRuntime, Running, encoded, eventually, grey

from uepnet.service import metrics as module
from uepnet.service.metrics import Metrics

Serve = Callable[..., Running]
IMAGE = encoded(grey(300, 300))


def documented() -> set[str]:
    rows = re.findall(r"^\| (uepnet_[\w, ]+) \|", module.__doc__ or "", re.MULTILINE)
    return {name for row in rows for name in row.split(", ")}


def test_exactly_the_documented_metrics_exist(serve: Serve) -> None:
    server = serve()
    server.count(IMAGE, params={"camera": "a"})
    server.state.metrics.watch_device_memory(lambda: (1, 2))
    text = server.http.get("/metrics").text
    found = set(re.findall(r"^# TYPE (uepnet_\w+)", text, re.MULTILINE))
    assert found == documented()


def test_the_text_is_prometheus_format_with_process_metrics(service: Running) -> None:
    response = service.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert "process_resident_memory_bytes" in response.text
    assert "python_gc_objects_collected_total" in response.text
    assert "_created" not in response.text


def test_one_image_is_counted_once_in_every_stage(serve: Serve) -> None:
    server = serve()
    count = server.count(IMAGE).json()["count"]
    for stage in ("decode", "queue", "inference"):
        assert server.metric(f"uepnet_{stage}_seconds_count") == 1
    assert server.metric("uepnet_images_total") == 1
    assert server.metric("uepnet_people_total") == count
    assert server.metric("uepnet_tiles_total", result="ok") == server.metric("uepnet_batch_tiles_sum") == 4
    assert server.metric("uepnet_batch_seconds_sum") == server.metric("uepnet_inference_seconds_sum")
    sample = server.state.metrics.registry.get_sample_value
    eventually(lambda: sample("uepnet_requests_total", {"route": "/v1/count", "outcome": "ok"}) == 1)
    assert server.metric("uepnet_requests_in_flight") == 0
    assert server.metric("uepnet_requests_limit") == 32


def test_routes_are_templates_so_labels_stay_few(serve: Serve) -> None:
    server = serve()
    for number in range(20):
        server.http.get(f"/nothing/{number}")
        server.http.get(f"/page/{number}")
    text = server.http.get("/metrics").text
    assert set(re.findall(r'uepnet_requests_total{outcome="\w+",route="([^"]+)"}', text)) == {"other", "/page/{name}"}


def test_outcomes_are_told_apart(serve: Serve, held: HeldRuntime) -> None:
    server = serve(held, deadline_seconds=0.2)
    server.count(IMAGE)
    server.count(b"bad")
    held.go.clear()
    server.count(IMAGE)
    held.go.set()
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 0)
    held.spoil = RuntimeError("broken")
    server.count(IMAGE)
    for outcome in ("ok", "invalid", "expired", "failed"):
        assert server.metric("uepnet_requests_total", route="/v1/count", outcome=outcome) == 1, outcome


def test_ready_is_one_only_while_requests_are_taken(serve: Serve) -> None:
    server = serve()
    assert server.metric("uepnet_ready") == 1
    server.state.admission.draining = True
    assert server.metric("uepnet_ready") == 0


def test_two_apps_in_one_process_do_not_add_up() -> None:
    first, second = Metrics(), Metrics()
    first.images.inc()
    assert second.registry.get_sample_value("uepnet_images_total") == 0
