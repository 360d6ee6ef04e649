"""Keys: everything but liveness and the page's own files needs one, once one is set."""

import logging
import time
from collections.abc import Callable

import pytest
from support.servers import Running, encoded, eventually, grey

KEY, OTHER, ADMIN = "key-number-one", "key-number-two", "the-admin-key"
IMAGE = encoded(grey(32, 32))
Serve = Callable[..., Running]


@pytest.fixture
def guarded(serve: Serve) -> Running:
    return serve(api_keys=(KEY, OTHER), admin_key=ADMIN)


def test_every_route_of_the_schema_and_unknown_paths_need_the_key(guarded: Running) -> None:
    schema = guarded.http.get("/openapi.json", headers={"X-API-Key": KEY}).json()
    paths = [(method, path) for path, methods in schema["paths"].items() for method in methods]
    assert len(paths) >= 12
    for method, path in [*paths, ("get", "/nothing"), ("put", "/v1/count"), ("get", "/openapi.json")]:
        response = guarded.http.request(method, path)
        if path == "/v2/health/live":
            assert response.status_code == 200
            continue
        assert response.status_code == 401, path
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["content-type"] == "application/problem+json"
    assert guarded.metric("uepnet_rejected_total", reason="unauthorised") == len(paths) + 2


@pytest.mark.parametrize("key", [KEY, OTHER, ADMIN])
def test_any_key_opens_in_either_header(guarded: Running, key: str) -> None:
    assert guarded.count(IMAGE, headers={"X-API-Key": key}).status_code == 200
    assert guarded.count(IMAGE, headers={"Authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-API-Key": ""},
        {"X-API-Key": KEY[:-1]},
        {"X-API-Key": KEY + "x"},
        {"X-API-Key": f"{KEY},{OTHER}"},
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": "Bearer wrong", "X-API-Key": KEY},
    ],
)
def test_anything_else_does_not(guarded: Running, headers: dict[str, str]) -> None:
    assert guarded.count(IMAGE, headers=headers).status_code == 401


def test_the_key_is_asked_for_before_the_body(guarded: Running) -> None:
    assert guarded.count(b"x" * 1_000_000).status_code == 401
    eventually(lambda: guarded.metric("uepnet_buffered_bytes") == 0)


def test_the_page_loads_without_a_key(guarded: Running) -> None:
    for path in ("/", "/docs", "/page/style.css", "/page/shared.js"):
        assert guarded.http.get(path).status_code == 200, path


def test_reloading_needs_the_admin_key(guarded: Running, service: Running) -> None:
    assert guarded.http.post("/v1/model/reload", headers={"X-API-Key": KEY}).status_code == 403
    assert guarded.http.post("/v1/model/reload", headers={"X-API-Key": ADMIN}).status_code == 200
    # Without an admin key reloading is off, for everyone.
    for headers in ({}, {"X-API-Key": ""}, {"X-API-Key": ADMIN}):
        assert service.http.post("/v1/model/reload", headers=headers).status_code == 403


def hosts(server: Running, host: str, path: str = "/v1/cameras", method: str = "GET", **headers: str) -> int:
    return server.http.request(method, path, headers={"Host": host, **headers}).status_code


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "127.9.9.9", "[::1]:8000", "uepnet:8000"]
)
def test_without_keys_the_host_header_names_this_machine_or_an_allowed_host(serve: Serve, host: str) -> None:
    assert hosts(serve(allowed_hosts="uepnet"), host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "", "["]
)
def test_without_keys_a_foreign_host_header_is_refused(service: Running, guarded: Running, host: str) -> None:
    before = service.metric("uepnet_rejected_total", reason="forged")
    response = service.http.get("/v1/cameras", headers={"Host": host})
    assert response.status_code == 403
    assert response.json()["type"] == "urn:uepnet:problem:wrong-host"
    assert service.metric("uepnet_rejected_total", reason="forged") == before + 1
    assert hosts(service, host, "/v2/health/live") == 200  # asked for by address
    assert hosts(guarded, host, **{"X-API-Key": KEY}) == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://localhost.evil.example", "http://[::", ""]
)
def test_without_keys_a_page_of_another_origin_changes_nothing(service: Running, origin: str) -> None:
    headers = {"Host": "localhost:8000", "Origin": origin, "Content-Type": "image/png"}
    for method, path in (("POST", "/v1/count"), ("PUT", "/v1/cameras/a"), ("DELETE", "/v1/cameras/a")):
        response = service.http.request(method, path, content=IMAGE, headers=headers)
        assert response.status_code == 403
        assert response.json()["type"] == "urn:uepnet:problem:foreign-origin"
    assert service.http.get("/v1/cameras", headers=headers).status_code == 200


def test_the_own_page_and_programs_may_post_without_keys(serve: Serve, service: Running) -> None:
    image = {"Host": "localhost:8000", "Content-Type": "image/png"}
    for headers in ({}, {"Origin": "http://localhost:8000"}, {"Origin": "https://localhost:8000"}):
        assert service.http.post("/v1/count", content=IMAGE, headers=image | headers).status_code == 200
    allowing = serve(cors_origins="https://ours.example")
    assert allowing.count(IMAGE, headers={"Origin": "https://ours.example"}).status_code == 200


def test_guessing_keys_gets_slower_and_slower_but_not_for_others(guarded: Running) -> None:
    def seconds(key: str) -> float:
        began = time.monotonic()
        guarded.http.get("/v1/cameras", headers={"X-API-Key": key})
        return time.monotonic() - began

    waits = [seconds(f"wrong-key-{number}") for number in range(4)]
    assert waits[3] >= 0.8  # 0.05 * 2 ** 4
    assert waits[0] >= 0.1
    guarded.http.get("/v1/cameras", headers={"X-API-Key": KEY}).raise_for_status()


def test_what_is_done_with_the_admin_key_is_logged(guarded: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="uepnet"):
        guarded.http.post("/v1/model/reload", headers={"X-API-Key": ADMIN}).raise_for_status()
        guarded.http.post("/v1/model/reload", headers={"X-API-Key": ADMIN}, json={"path": "../etc"})
        guarded.http.post("/v1/model/reload", headers={"X-API-Key": OTHER})
        guarded.http.get("/v1/model", headers={"X-API-Key": ADMIN})
        guarded.http.get("/v1/model", headers={"X-API-Key": "a-wrong-key"})
        eventually(lambda: len([one for one in caplog.records if one.name == "uepnet.access"]) == 5)
    audited = [one.fields for one in caplog.records if one.name == "uepnet.audit"]  # type: ignore[attr-defined]
    assert [(line["status"], line["key"], line["model_path"]) for line in audited] == [
        (200, "admin", "configured"),
        (409, "admin", "../etc"),
    ]
    assert audited[0]["model"] == "toy 1"
    reasons = [one.fields.get("problem") for one in caplog.records if one.name == "uepnet.access"]  # type: ignore[attr-defined]
    assert reasons == [None, "model-refused", "forbidden", None, "unauthorised"]
    keys = [one.fields.get("key") for one in caplog.records if one.name == "uepnet.access"]  # type: ignore[attr-defined]
    assert keys == ["admin", "admin", "api-2", "admin", None]
    assert not [one for one in caplog.records if ADMIN in one.getMessage() + str(getattr(one, "fields", ""))]


def test_other_origins_are_let_in_only_where_allowed(serve: Serve, service: Running) -> None:
    asking = {"Origin": "https://ours.example", "Access-Control-Request-Method": "POST"}
    asking["Access-Control-Request-Headers"] = "x-api-key"
    assert "access-control-allow-origin" not in service.http.options("/v1/count", headers=asking).headers
    allowing = serve(cors_origins="https://ours.example", api_keys=KEY)
    preflight = allowing.http.options("/v1/count", headers=asking)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://ours.example"
    other = allowing.http.options("/v1/count", headers={**asking, "Origin": "https://theirs.example"})
    assert "access-control-allow-origin" not in other.headers


def test_every_answer_has_safe_headers(service: Running) -> None:
    for path in ("/", "/docs", "/v1/cameras", "/nothing", "/metrics"):
        headers = service.http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "server" not in headers
