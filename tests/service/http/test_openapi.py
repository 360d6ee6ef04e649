"""The OpenAPI document: complete, and true under schemathesis."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.servers import Running

from uepnet.service.errors import PROBLEMS
from uepnet.service.schemas import CountAnswer

Serve = Callable[..., Running]


@pytest.fixture
def document(service: Running) -> dict[str, Any]:
    schema: dict[str, Any] = service.http.get("/openapi.json").json()
    return schema


def test_schemathesis_finds_nothing(serve: Serve, tmp_path: Path) -> None:
    server = serve(admin_key="the-admin-key", max_cameras=100_000)
    command = [sys.executable, "-m", "schemathesis.cli"]
    command += ["--config-file", str(Path(__file__).with_name("schemathesis.toml"))]
    command += ["run", f"{server.url}/openapi.json", "--seed", "7", "-H", "X-API-Key: the-admin-key"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-5000:]
    assert "Fuzzing" in result.stdout
    assert "❌" not in result.stdout


def test_every_operation_says_what_it_does_and_how_it_fails(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            assert operation["tags"], path
            if path != "/v2/health/live":
                assert {"401", "500"} < operation["responses"].keys(), path
                assert {"200", "204"} & operation["responses"].keys(), path
            if "requestBody" in operation:
                assert operation["requestBody"]["content"], path
                assert {"408", "413", "503"} <= operation["responses"].keys(), path
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert "application/problem+json" in response["content"], (path, status)


def test_counting_has_examples(document: dict[str, Any]) -> None:
    operation = document["paths"]["/v1/count"]["post"]
    answer = operation["responses"]["200"]["content"]["application/json"]
    assert answer["example"].keys() <= document["components"]["schemas"]["CountAnswer"]["properties"].keys()
    assert {"image/jpeg", "multipart/form-data"} <= operation["requestBody"]["content"].keys()


def test_the_wire_names_are_the_promised_ones(document: dict[str, Any]) -> None:
    names = {
        "count",
        "range",
        "width",
        "height",
        "zones",
        "saturated",
        "scales",
        "familiarity",
        "unfamiliar",
        "warnings",
        "model",
        "timings_ms",
        "request_id",
    }
    assert names < document["components"]["schemas"]["CountAnswer"]["properties"].keys()


def test_the_guide_names_every_operation_parameter_and_problem(document: dict[str, Any]) -> None:
    guide = (ROOT / "docs/api.md").read_text()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f"{method.upper()} {path}" in guide
            for parameter in operation.get("parameters", []):
                assert parameter["in"] == "path" or f"?{parameter['name']}=" in guide
    rows = re.findall(r"^\| (\d+) \| `([\w-]+)` \|", guide, re.MULTILINE)
    assert {name: int(status) for status, name in rows} == {name: status for name, (status, _) in PROBLEMS.items()}
    example = json.loads(re.findall(r"```json\n(.*?)```", guide, re.DOTALL)[0])
    assert CountAnswer.model_validate(example).model_dump(exclude={"map"}) == example
