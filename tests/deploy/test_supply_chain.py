"""What we depend on: hashes for every pin, and a bill of materials that names it all."""

import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.tags import Tag
from packaging.version import Version
from support.paths import ROOT

from uepnet.deploy.lock import IndexPage, fits, wheels
from uepnet.deploy.locked import locked, normalised, read_hashes
from uepnet.deploy.sbom import Closure, bill, licence, licences

HASHES = read_hashes((ROOT / "deploy/hashes.txt").read_text())


def wheel(folder: Path, content: str = "answer = 42\n") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "some_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some_thing.py", content)
        archive.writestr("some_thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: some-thing\nVersion: 1.0\n")
        archive.writestr("some_thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("some_thing-1.0.dist-info/RECORD", "")
    return path


def entry(path: Path) -> dict[tuple[str, str], str]:
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return read_hashes(f"Some.Thing==1.0 \\\n    --hash=sha256:{sha256}\n")


def test_every_pinned_package_has_hashes() -> None:
    pins = (ROOT / "constraints.txt").read_text().split()
    pinned = {(normalised(name), version) for name, version in (pin.split("==") for pin in pins)}
    assert set(HASHES) == pinned, "constraints.txt has changed: run `make lock`"
    assert all(re.fullmatch(r"\S+( \\\n    --hash=sha256:[0-9a-f]{64})+", text) for text in HASHES.values())


@pytest.mark.parametrize("changed", [False, True])
def test_pip_installs_what_was_recorded_and_nothing_else(tmp_path: Path, changed: bool) -> None:
    recorded = entry(wheel(tmp_path / "wheels"))
    if changed:
        wheel(tmp_path / "wheels", "answer = 43\n")
    (tmp_path / "locked.txt").write_text("\n".join(locked(recorded, tmp_path / "wheels")))
    options = ("--no-deps", "--no-index", "--find-links", tmp_path / "wheels", "--require-hashes", "--isolated")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", tmp_path / "to", "-r", "locked.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0, (tmp_path / "to/some_thing.py").exists()) == (not changed, not changed), done.stderr


def test_a_wheel_that_was_not_recorded_is_told(tmp_path: Path) -> None:
    wheel(tmp_path)
    with pytest.raises(SystemExit, match=r"some_thing-1\.0-py3-none-any\.whl is not in hashes\.txt"):
        locked(HASHES, tmp_path)


def test_hashes_are_read_from_an_index_for_the_platforms_that_we_support() -> None:
    links = {
        "thing-1.0-cp311-cp311-manylinux_2_28_x86_64.whl": "1" * 64,
        "thing-1.0-cp311-cp311-manylinux2014_aarch64.manylinux_2_17_aarch64.whl": "2" * 64,
        "thing-1.0-cp311-cp311-win_amd64.whl": "3" * 64,
        "thing-1.0-cp310-cp310-manylinux_2_28_x86_64.whl": "4" * 64,
        "thing-1.1-py3-none-any.whl": "5" * 64,
        "thing-1.0.tar.gz": "6" * 64,
    }
    text = "".join(f'<a href="https://files.example/{name}#sha256={sha}">x</a>' for name, sha in links.items())
    assert wheels(IndexPage(text), Version("1.0")) == ["1" * 64, "2" * 64]


@pytest.mark.parametrize(
    ("tag", "fit"),
    [
        ("py3-none-any", True),
        ("py2-none-any", False),
        ("cp38-abi3-manylinux_2_28_aarch64", True),
        ("cp314-abi3-manylinux_2_28_x86_64", False),
        ("cp313-cp313-manylinux_2_28_x86_64", True),
        ("cp313-cp313t-manylinux_2_28_x86_64", False),
        ("cp312-cp312-musllinux_1_2_x86_64", False),
        ("pp311-pypy311_pp73-manylinux_2_28_x86_64", False),
        ("py3-none-macosx_11_0_arm64", False),
    ],
)
def test_tags_of_the_platforms(tag: str, fit: bool) -> None:
    assert fits(Tag(*tag.split("-"))) is fit


@pytest.fixture(scope="module")
def closure() -> Closure:
    return Closure(["serve", "cpu"])


def test_the_bill_of_materials_names_what_the_service_needs_and_no_more(closure: Closure) -> None:
    made = bill(closure)
    names = {part["name"] for part in made["components"]}
    assert {"fastapi", "starlette", "h11", "numpy", "pillow", "onnxruntime"} <= names
    assert not {"torch", "pytest", "ruff", "uepnet"} & names
    for part in made["components"]:
        assert part["version"] == importlib.metadata.version(part["name"])
        assert part["purl"] == part["bom-ref"] == f"pkg:pypi/{part['name']}@{part['version']}"
    references = {part["bom-ref"] for part in [made["metadata"]["component"], *made["components"]]}
    assert {node["ref"] for node in made["dependencies"]} == references
    assert all(set(node["dependsOn"]) <= references for node in made["dependencies"])
    assert made["serialNumber"] == bill(Closure(["serve", "cpu"]))["serialNumber"]


def test_every_package_states_its_licence_and_is_listed(closure: Closure) -> None:
    listed = dict(re.findall(r"^\| ([\w-]+) \| (.+) \|$", (ROOT / "docs/licences.md").read_text(), re.MULTILINE))
    for name, package in closure.packages.items():
        assert licence(package) != "unknown"
        assert name == "uepnet" or listed[name] == licence(package), "run `make licences` and edit docs/licences.md"
    assert licences(closure).splitlines()[2] in (ROOT / "docs/licences.md").read_text()


def test_the_command_prints_json_and_refuses_an_unknown_extra() -> None:
    command = [sys.executable, "-m", "uepnet.deploy.sbom"]
    done = subprocess.run([*command, "serve"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["bomFormat"] == "CycloneDX"
    refused = subprocess.run([*command, "server"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stderr.startswith("uepnet has no extra 'server'; it has ")
