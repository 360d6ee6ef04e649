"""Who may import whom, read from the source, and what a bare installation can import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT

TORCH = {"torch", "torchvision", "safetensors"}
INFERENCE = {"onnxruntime", "openvino"}
SERVER = {"fastapi", "starlette", "uvicorn", "prometheus_client", "pydantic_settings", "multipart", "python_multipart"}
HTTP = {"fastapi", "starlette", "uvicorn", "h11", "httpx", "multipart", "python_multipart"}
TRAINING = TORCH | {"scipy", "onnx", "onnxscript", "tensorboard", "matplotlib"}
VIDEO = {"av", "matplotlib"}
HEAVY = INFERENCE | SERVER | TRAINING | VIDEO | {"ray"}


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it, as dotted names; `from a import b` gives a and a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path.name} imports relatively; write it in full"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"{folder} holds no module"
    return found


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def top(name: str) -> str:
    return name.partition(".")[0]


@pytest.mark.parametrize("path", sources("model"), ids=lambda path: path.name)
def test_model_imports_no_sibling_and_only_its_own_dependencies(path: Path) -> None:
    allowed = sys.stdlib_module_names | {"numpy", "PIL", "pydantic", "uepnet"}
    own = {"network.py": {"torch"}, "onnxruntime_engine.py": {"onnxruntime"}, "camera_file.py": {"yaml"}}
    allowed |= own.get(path.name, set())
    for name in imported(path):
        assert top(name) in allowed, f"model/{path.name} imports {name}"
        if top(name) == "uepnet":
            assert within(name, "uepnet.model"), f"model/{path.name} imports {name}"
            assert path.name == "network.py" or not within(name, "uepnet.model.network")


@pytest.mark.parametrize("path", sources("service"), ids=lambda path: path.name)
def test_service_needs_neither_training_nor_torch(path: Path) -> None:
    for name in imported(path):
        assert top(name) not in TORCH, f"service/{path.name} imports {name}"
        if top(name) == "uepnet":
            assert within(name, "uepnet.model", "uepnet.service") or name in ("uepnet", "uepnet.__version__")
            assert not within(name, "uepnet.model.network"), f"service/{path.name} imports {name}"


@pytest.mark.parametrize("path", sources("service/core"), ids=lambda path: path.name)
def test_the_core_of_the_service_knows_no_http(path: Path) -> None:
    for name in imported(path):
        assert top(name) not in HTTP, f"service/core/{path.name} imports {name}"
        assert not within(name, "uepnet.service.http"), f"service/core/{path.name} imports {name}"


@pytest.mark.parametrize("path", sources("training"), ids=lambda path: path.name)
def test_training_knows_the_model_and_not_the_service(path: Path) -> None:
    for name in imported(path):
        assert top(name) not in SERVER, f"training/{path.name} imports {name}"
        if top(name) == "uepnet":
            assert within(name, "uepnet.model", "uepnet.training") or name in ("uepnet", "uepnet.__version__")


def test_no_two_classes_have_the_same_name() -> None:
    homes: dict[str, list[str]] = {}
    for folder in ("model", "training", "service", "client", "video", "uepnet", "bench", "deploy", "tests"):
        for path in sources(folder):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("folder", ["model", "training", "service", "bench", "uepnet", "deploy", "tests"])
def test_nobody_imports_a_second_copy_of_our_packages(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        for name in imported(path):
            assert top(name) not in ("model", "training", "service", "bench"), f"{path} imports {name}"


def run_without(packages: set[str], script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter in which importing any of the packages fails."""
    block = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in sorted(packages))
    return subprocess.run([sys.executable, "-c", block + script], capture_output=True, text=True, timeout=120)


def test_importing_uepnet_costs_nothing() -> None:
    script = "import uepnet\nprint([name for name in ('numpy', 'PIL', 'pydantic', 'httpx') if name in sys.modules])"
    done = run_without(HEAVY, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["uepnet.cli", "uepnet.client.client", "uepnet.model.count", "uepnet.model.render"])
def test_a_bare_installation_can_import(module: str) -> None:
    done = run_without(HEAVY, f"import {module}")
    assert done.returncode == 0, done.stderr


def test_the_public_names_of_a_bare_installation_are_there() -> None:
    done = run_without(HEAVY, "import uepnet\nfor name in uepnet.__all__: getattr(uepnet, name)")
    assert done.returncode == 0, done.stderr


def test_the_service_starts_without_what_training_needs() -> None:
    done = run_without(TRAINING | VIDEO, "import uepnet.service.http.app, uepnet.model.runtime")
    assert done.returncode == 0, done.stderr
