"""Keys: everything but liveness and the page's own files needs one, once one is set."""

from collections.abc import Callable

import pytest
from servers import Running, encoded, grey

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
    assert guarded.metric("uepnet_buffered_bytes") == 0


def test_the_page_loads_without_a_key(guarded: Running) -> None:
    for path in ("/", "/docs", "/page/style.css", "/page/main.js"):
        assert guarded.http.get(path).status_code == 200, path


def test_reloading_needs_the_admin_key(guarded: Running, service: Running) -> None:
    assert guarded.http.post("/v1/model/reload", headers={"X-API-Key": KEY}).status_code == 403
    assert guarded.http.post("/v1/model/reload", headers={"X-API-Key": ADMIN}).status_code == 200
    # Without an admin key reloading is off, for everyone.
    for headers in ({}, {"X-API-Key": ""}, {"X-API-Key": ADMIN}):
        assert service.http.post("/v1/model/reload", headers=headers).status_code == 403


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
