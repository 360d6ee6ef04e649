"""The control room over HTTP: settings, masks, ground, history, alerts, several services on one database."""

import csv
import io
import json
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from support.servers import SOON, HeldRuntime, Process, Running, encoded, eventually, grey

from uepnet.model.errors import InputError
from uepnet.service.cameras.control_room import ControlRoom
from uepnet.service.cameras.wire import AlertMessage
from uepnet.service.settings import Settings

Serve = Callable[..., Running]
ADMIN = {"X-API-Key": "the-admin-key"}
HALF = [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]
WHITE, BLACK = encoded(grey(64, 64)), encoded(grey(64, 64, 0))

CAMERAS = """cameras:
  Gleis 3 Süd:
    source: rtsp://user:secret@10.0.0.5/stream
    zones: [{name: left, polygon: [[0, 0], [0.5, 0], [0.5, 1], [0, 1]], units: fractions}]
    smooth_seconds: 0
    keep_picture: true
    mask: [[[0, 0], [1, 0], [1, 0.5], [0, 0.5]]]
    limits: [{people: 100}, {zone: left, people: 1000}]
  quiet: {source: none}
"""


@pytest.fixture
def camera_file(tmp_path: Path) -> Path:
    path = tmp_path / "cameras.yml"
    path.write_text(CAMERAS)
    return path


def at(folder: Path) -> str:
    return f"sqlite:///{folder / 'history.sqlite'}"


def rows_in(folder: Path, table: str) -> int:
    """How many a table of the database has: another process writes it soon, but not at once."""
    with closing(sqlite3.connect(folder / "history.sqlite")) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def post(server: Running | Process, camera: str, content: bytes = WHITE, **params: str) -> dict[str, Any]:
    url = f"{server.url}/v1/count"
    headers = {"Content-Type": "image/png"}
    answer = httpx.post(url, params={"camera": camera, **params}, content=content, headers=headers, timeout=SOON)
    answer.raise_for_status()
    return dict(answer.json())


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def state(server: Running, camera: str) -> dict[str, Any]:
    return dict(server.http.get(f"/v1/cameras/{camera}").json())


def test_zones_masks_and_limits_of_a_camera_apply_to_what_is_posted(serve: Serve, camera_file: Path) -> None:
    server = serve(cameras=camera_file, admin_key="the-admin-key")
    whole = server.count(WHITE).json()["count"]
    answer = post(server, "Gleis 3 Süd")
    assert answer["count"] == pytest.approx(whole / 2, rel=0.01)  # half of it is masked
    assert answer["zones"][0]["count"] == pytest.approx(answer["count"] / 2)
    assert answer["zones"][0]["range"]["low"] <= answer["zones"][0]["count"] <= answer["zones"][0]["range"]["high"]
    found = state(server, "Gleis 3 Süd")
    assert found["count"] == answer["count"]
    assert found["settings"]["zones"][0]["name"] == "left"
    assert "secret" not in json.dumps(found) + server.http.get("/v1/cameras").text
    assert server.metric("uepnet_zone_people_low", camera="Gleis 3 Süd", zone="left") is not None


def test_what_is_masked_is_black_in_the_picture_that_is_kept(serve: Serve, camera_file: Path) -> None:
    server = serve(cameras=camera_file)
    assert server.http.get("/v1/cameras/Gleis 3 Süd/picture").status_code == 404
    post(server, "Gleis 3 Süd")
    answer = server.http.get("/v1/cameras/Gleis 3 Süd/picture", params={"view": "picture"})
    pixels = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert answer.headers["content-type"] == "image/jpeg"
    assert pixels[:30].max() < 16
    assert pixels[36:].min() > 240
    assert Image.open(io.BytesIO(server.http.get("/v1/cameras/Gleis 3 Süd/picture").content)).size == (64, 64)
    post(server, "stranger")
    assert server.http.get("/v1/cameras/stranger/picture").status_code == 404


def test_a_picture_that_was_under_way_while_its_masks_changed_is_not_kept(
    serve: Serve, held: HeldRuntime, camera_file: Path, tmp_path: Path
) -> None:
    server = serve(held, cameras=camera_file, history=at(tmp_path), admin_key="the-admin-key")
    held.go.clear()
    poster = threading.Thread(target=post, args=(server, "Gleis 3 Süd"))
    poster.start()
    eventually(lambda: held.tiles > 0)
    whole = {"keep_picture": True, "units": "fractions", "mask": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}
    assert server.http.put("/v1/cameras/Gleis 3 Süd", json=whole, headers=ADMIN).is_success
    held.go.set()
    poster.join()
    assert state(server, "Gleis 3 Süd")["last_count"] is not None
    assert server.http.get("/v1/cameras/Gleis 3 Süd/picture").status_code == 404
    post(server, "Gleis 3 Süd")
    assert server.http.get("/v1/cameras/Gleis 3 Süd/picture").is_success


def test_a_configured_camera_is_there_before_its_first_frame(serve: Serve, camera_file: Path) -> None:
    server = serve(cameras=camera_file)
    quiet = state(server, "quiet")
    assert (quiet["count"], quiet["last_count"], quiet["silent"], quiet["configured"]) == (None, None, True, True)
    assert server.http.get("/v1/cameras/unknown").status_code == 404


def test_a_silent_camera_has_no_count_but_its_last_one(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text("cameras: {gate: {silent_seconds: 3}}")
    server = serve(cameras=tmp_path / "c.yml")
    count = post(server, "gate")["count"]
    assert state(server, "gate")["count"] == count
    eventually(lambda: state(server, "gate")["count"] is None)
    silent = state(server, "gate")
    assert (silent["last_count"], silent["silent"]) == (count, True)
    assert 'uepnet_camera_people{camera="gate"}' not in server.http.get("/metrics").text
    eventually(lambda: [one["kind"] for one in server.http.get("/v1/alerts").json()["open"]] == ["silent"])
    assert server.metric("uepnet_alert_open", camera="gate", zone="", kind="silent") == 1


def test_ground_gives_density_to_zones_and_to_the_frame(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_text(
        "cameras:\n  square:\n    units: fractions\n"
        "    ground: {points: [[0,0],[1,0],[1,1],[0,1]], rectangle: [8, 8]}\n"
        "    zones: [{name: half, polygon: [[0,0],[0.5,0],[0.5,1],[0,1]]}]\n"
    )
    server = serve(cameras=tmp_path / "c.yml")
    answer = post(server, "square")
    zone = answer["zones"][0]
    assert zone["square_metres"] == pytest.approx(32)
    assert zone["people_per_square_metre"] == pytest.approx(zone["count"] / 32)
    assert state(server, "square")["people_per_square_metre"] == pytest.approx(answer["count"] / 64, rel=0.05)


def test_an_alert_is_raised_listed_acknowledged_and_ended(serve: Serve, camera_file: Path) -> None:
    server = serve(cameras=camera_file)
    eventually(lambda: server.server.app.state.parts.room.leads)
    with server.http.stream("GET", "/v1/events", timeout=SOON) as stream:
        lines = stream.iter_lines()
        post(server, "Gleis 3 Süd")
        data = next(line for line in lines if line.startswith("data: ") and '"event"' in line)
    message = AlertMessage.model_validate_json(data.removeprefix("data: "))
    assert (message.event, message.alert.camera, message.alert.limit) == ("opened", "Gleis 3 Süd", 100)
    (alert,) = (one for one in server.http.get("/v1/alerts").json()["open"] if one["kind"] == "people")
    assert alert["text"].endswith("people, limit 100.")
    limits = {(limit["zone"], limit["state"]) for limit in state(server, "Gleis 3 Süd")["limits"]}
    assert limits == {(None, "alert"), ("left", "clear")}
    seen = server.http.post(f"/v1/alerts/{alert['id']}/acknowledge").json()
    assert abs(seen["acknowledged"] - time.time()) < SOON
    assert server.http.post("/v1/alerts/none/acknowledge").status_code == 404
    time.sleep(0.01)
    post(server, "Gleis 3 Süd", BLACK)
    answer = server.http.get("/v1/alerts").json()
    (ended,) = (one for one in answer["recent"] if one["id"] == alert["id"])
    assert (ended["end_reason"], ended["acknowledged"]) == ("cleared", seen["acknowledged"])


def test_settings_are_changed_with_the_admin_key_and_survive_a_restart(
    process: Callable[..., Process], camera_file: Path, tmp_path: Path
) -> None:
    shared = {"cameras": camera_file, "history": at(tmp_path), "admin_key": "the-admin-key"}
    server = process(**shared)
    changed = {"units": "fractions", "zones": [{"name": "right", "polygon": HALF}], "limits": [{"people": 3}]}
    assert server.http.put("/v1/cameras/new one", json=changed).status_code == 403
    answer = server.http.put("/v1/cameras/new one", json=changed, headers=ADMIN)
    assert answer.json()["settings"]["limits"][0]["people"] == 3
    assert server.http.put("/v1/cameras/quiet", json={"limits": [{"people": 9}]}, headers=ADMIN).is_success
    eventually(lambda: rows_in(tmp_path, "cameras") == 2)
    server.kill()
    again = process(**shared)
    eventually(lambda: again.http.get("/v1/cameras/new one").status_code == 200)
    assert again.http.get("/v1/cameras/new one").json()["settings"]["zones"][0]["name"] == "right"
    assert again.http.get("/v1/cameras/quiet").json()["settings"]["limits"][0]["people"] == 9
    assert again.http.get("/v1/cameras/quiet").json()["overrides_file"]
    assert not again.http.get("/v1/cameras/new one").json()["overrides_file"], "the file has no such camera"
    assert any("quiet: settings that were saved over HTTP override the camera file" in line for line in again.log)
    assert again.http.delete("/v1/cameras/quiet", headers=ADMIN).status_code == 204
    assert not again.http.get("/v1/cameras/quiet").json()["overrides_file"]
    assert again.http.get("/v1/cameras/quiet").json()["settings"]["limits"] == []
    assert camera_file.read_text() == CAMERAS


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"source": "rtsp://x"}, "source"),
        ({"limits": [{"zone": "none", "people": 3}]}, "does not exist"),
        ({"zones": [{"name": "a", "polygon": [[0, 0], [90, 90]]}]}, "at least 3"),
        ({"limits": [{"people": -1}]}, "greater than 0"),
        ({"zones": [{"nmae": "a", "polygon": [[0, 0], [90, 0], [90, 90]]}]}, "nmae: this key is not known."),
    ],
)
def test_wrong_settings_are_refused(serve: Serve, tmp_path: Path, body: dict[str, Any], text: str) -> None:
    server = serve(history=at(tmp_path), admin_key="the-admin-key")
    answer = server.http.put("/v1/cameras/gate", json=body, headers=ADMIN)
    assert (answer.status_code, text in answer.json()["detail"]) == (422, True), answer.text


def test_without_a_history_changes_and_history_are_a_conflict(serve: Serve) -> None:
    server = serve(admin_key="the-admin-key")
    assert server.http.put("/v1/cameras/gate", json={}, headers=ADMIN).status_code == 409
    answer = server.http.get("/v1/cameras/gate/history")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:uepnet:problem:history-off")


def test_the_history_comes_as_json_and_csv_and_survives_a_kill(
    process: Callable[..., Process], camera_file: Path, tmp_path: Path
) -> None:
    server = process(cameras=camera_file, history=at(tmp_path))
    begin = ago(3600)
    for minutes in (50, 49.99, 20):  # a gap in between
        post(server, "Gleis 3 Süd", time=ago(60 * minutes))
    last = post(server, "Gleis 3 Süd")["count"]
    eventually(lambda: rows_in(tmp_path, "counts") == 8)  # of the frame and of one zone
    server.kill()
    again = process(cameras=camera_file, history=at(tmp_path))
    query = {"start": begin, "resolution": "raw"}
    answer = again.http.get("/v1/cameras/Gleis 3 Süd/history", params=query).json()
    frame, left = answer["series"]
    assert (frame["zone"], left["zone"], len(frame["points"]), len(left["points"])) == (None, "left", 4, 4)
    assert all(point["mean"] == last and point["low"] < last for point in frame["points"])
    minutes = again.http.get("/v1/cameras/Gleis 3 Süd/history", params={"start": begin}).json()["series"][0]["points"]
    assert sum(point["counts"] for point in minutes) == 4
    assert len(minutes) in (3, 4)
    table = again.http.get("/v1/cameras/Gleis 3 Süd/history", params=query, headers={"Accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert len(rows) == 8
    assert (rows[0]["zone"], float(rows[0]["mean"])) == ("", last)
    assert again.http.get("/v1/cameras/unknown/history").status_code == 404


def test_a_picture_from_the_past_is_kept_but_neither_shown_nor_compared(
    serve: Serve, camera_file: Path, tmp_path: Path
) -> None:
    server = serve(cameras=camera_file, history=at(tmp_path))
    post(server, "Gleis 3 Süd", time=ago(3000))
    assert state(server, "Gleis 3 Süd")["count"] is None
    assert [one for one in server.http.get("/v1/alerts").json()["open"] if one["kind"] == "people"] == []


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"camera": "gate", "time": "noon"}, "2026-05-01T12:00:00Z"),
        ({"camera": "gate", "time": "2026-05-01T12:00:00"}, "2026-05-01T12:00:00Z"),
        ({"camera": "gate", "time": "2999-05-01T12:00:00Z"}, "future"),
        ({"time": "2026-05-01T12:00:00Z"}, "give its name"),
        ({"camera": "a/b"}, "letters, digits, spaces"),
        ({"camera": "gate", "tme": "3"}, "did you mean time?"),
        ({"camera": ["gate", "hall"]}, "more than once"),
    ],
)
def test_wrong_parameters_are_refused(service: Running, params: dict[str, Any], text: str) -> None:
    answer = service.count(WHITE, params=params)
    assert answer.status_code == 422
    assert text in answer.json()["detail"]


def test_unknown_parameters_are_ignored_where_other_programs_ask(service: Running) -> None:
    assert service.http.get("/v1/cameras", params={"x": "1"}).status_code == 422
    for path in ("/metrics", "/v2/health/live", "/"):
        assert service.http.get(path, params={"x": "1"}).status_code == 200


def test_a_wrong_camera_file_or_database_ends_the_start(tmp_path: Path, model_dir: Path) -> None:
    from uepnet.service.http.app import create_app

    (tmp_path / "c.yml").write_text("cameras: {gate: {sorce: x}}")
    with pytest.raises(InputError, match=r"line 1.*did you mean source"):
        create_app(Settings(model=model_dir, cameras=tmp_path / "c.yml", history="off"))
    with pytest.raises(InputError, match="database URL"):
        create_app(Settings(model=model_dir, history="nonsense"))


def test_two_services_on_one_database_raise_an_alert_once(serve: Serve, camera_file: Path, tmp_path: Path) -> None:
    one, two = (serve(cameras=camera_file, history=at(tmp_path)) for _ in range(2))
    rooms = [server.server.app.state.parts.room for server in (one, two)]
    eventually(lambda: [room.leads for room in rooms].count(True) == 1)
    for index in range(6):
        post((one, two)[index % 2], "Gleis 3 Süd")
        time.sleep(0.05)
    for server in (one, two):
        eventually(
            lambda server=server: (
                [alert["kind"] for alert in server.http.get("/v1/alerts").json()["open"] if alert["kind"] == "people"]
                == ["people"]
            )
        )
    ids = {alert["id"] for server in (one, two) for alert in server.http.get("/v1/alerts").json()["open"]}
    assert len(ids) == 1
    eventually(
        lambda: (
            len(
                one.http.get("/v1/cameras/Gleis 3 Süd/history", params={"resolution": "raw"}).json()["series"][0][
                    "points"
                ]
            )
            == 6
        )
    )


def test_limits_do_not_wait_for_a_database_that_hangs(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uepnet.service.cameras.control_room.ANSWER_SECONDS", 0.1)
    released, ask = threading.Event(), ControlRoom._ask
    monkeypatch.setattr(ControlRoom, "_ask", lambda room: (released.wait(SOON), ask(room))[1])
    (tmp_path / "c.yml").write_text("cameras: {gate: {silent_seconds: 1}}")
    server = serve(cameras=tmp_path / "c.yml", history=at(tmp_path))
    try:
        eventually(lambda: [one["kind"] for one in server.http.get("/v1/alerts").json()["open"]] == ["silent"])
    finally:
        released.set()
