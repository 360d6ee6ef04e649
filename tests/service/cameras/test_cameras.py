"""Cameras: the latest count per camera and zone, in a list, in Prometheus and as events."""

import json
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from support.servers import SOON, Running, encoded, eventually, grey

from uepnet.service.cameras.wire import CameraState

IMAGE = encoded(grey(64, 64))
ZONES = '{"zones": [{"name": "door", "polygon": [[0, 0], [32, 0], [32, 64], [0, 64]]}]}'
Serve = Callable[..., Running]


def show(server: Running, camera: str, content: bytes = IMAGE) -> httpx.Response:
    return server.count(content, params={"camera": camera})


def events(server: Running) -> Iterator[CameraState]:
    with server.http.stream("GET", "/v1/events", timeout=SOON) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield CameraState.model_validate_json(line.removeprefix("data: "))


def test_the_latest_count_of_each_camera_is_listed(serve: Serve) -> None:
    server = serve()
    assert server.http.get("/v1/cameras").json() == {"cameras": []}
    show(server, "west")
    show(server, "east", encoded(grey(64, 64, 0)))
    files = {"image": ("x.png", IMAGE), "zones": (None, ZONES)}
    server.http.post("/v1/count", params={"camera": "west"}, files=files).raise_for_status()
    east, west = (CameraState.model_validate(one) for one in server.http.get("/v1/cameras").json()["cameras"])
    assert (east.camera, west.camera) == ("east", "west")
    assert east.count == 0 < west.count
    assert west.zones[0].count == pytest.approx(west.count / 2)
    assert abs(west.time - time.time()) < SOON


def test_prometheus_sees_cameras_and_zones(serve: Serve) -> None:
    server = serve()
    files = {"image": ("x.png", IMAGE), "zones": (None, ZONES)}
    count = server.http.post("/v1/count", params={"camera": "north"}, files=files).json()["count"]
    assert server.metric("uepnet_camera_people", camera="north") == count
    assert server.metric("uepnet_zone_people", camera="north", zone="door") == pytest.approx(count / 2)
    assert server.metric("uepnet_camera_last_seen_timestamp_seconds", camera="north") > time.time() - SOON
    assert server.metric("uepnet_cameras") == 1
    assert 'uepnet_zone_people{camera="north",zone="door"}' in server.http.get("/metrics").text


def test_no_more_cameras_than_allowed_are_remembered(serve: Serve) -> None:
    server = serve(max_cameras=2)
    assert show(server, "a").status_code == show(server, "b").status_code == 200
    refused = show(server, "c")
    assert refused.status_code == 429
    assert refused.json()["type"] == "urn:uepnet:problem:too-many-cameras"
    assert refused.headers["retry-after"] == "60"
    assert show(server, "a").status_code == 200
    assert server.count(IMAGE).status_code == 200


def test_silent_cameras_are_forgotten_everywhere(serve: Serve) -> None:
    server = serve(max_cameras=1, camera_stale_seconds=0.3)
    assert show(server, "a").status_code == 200
    eventually(lambda: server.http.get("/v1/cameras").json() == {"cameras": []})
    assert "uepnet_camera_people{" not in server.http.get("/metrics").text
    assert show(server, "b").status_code == 200


def test_events_begin_with_what_is_known_and_go_on_with_what_is_new(serve: Serve) -> None:
    server = serve()
    show(server, "first")
    stream = events(server)
    assert next(stream).camera == "first"
    assert server.metric("uepnet_event_streams") == 1
    show(server, "second")
    assert next(stream).camera == "second"
    assert show(server, "first", encoded(grey(64, 64, 0))).status_code == 200
    assert next(stream).count == 0
    stream.close()  # type: ignore[attr-defined]
    eventually(lambda: server.metric("uepnet_event_streams") == 0)


def test_no_more_listeners_than_allowed(serve: Serve) -> None:
    server = serve(max_event_streams=1)
    show(server, "a")
    stream = events(server)
    next(stream)
    response = server.http.get("/v1/events")
    assert response.status_code == 429
    assert response.json()["type"] == "urn:uepnet:problem:too-many-streams"


def test_a_listener_that_does_not_read_keeps_the_newest_of_each_camera(serve: Serve) -> None:
    server = serve()
    listener = server.state.cameras.listen()
    for value in (0, 100, 255):
        last = show(server, "a", encoded(grey(64, 64, value))).json()["count"]
        show(server, "b")
    assert sorted(name for _, name in listener._news) == ["a", "b"]
    assert CameraState.model_validate_json(listener._news["count", "a"]).count == last


def test_streams_end_when_the_server_drains(serve: Serve) -> None:
    server = serve()
    show(server, "a")
    stream = events(server)
    next(stream)
    server.server.stop()
    assert list(stream) == []  # it ends


def test_an_event_is_a_camera_of_the_list(serve: Serve) -> None:
    server = serve()
    show(server, "a")
    stream = events(server)
    (listed,) = server.http.get("/v1/cameras").json()["cameras"]
    assert json.loads(next(stream).model_dump_json()) == listed
