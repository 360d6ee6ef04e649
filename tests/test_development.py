"""Makefile, CI workflow, pre-commit hooks and templates: valid, and consistent with each other."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT

BIN = Path(sys.executable).parent
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def targets() -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony
    return set(phony[1].split())


def workflow() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    return content


def test_make_help_describes_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    described = set(re.findall(r"^  make (\S+) +\S", shown, re.MULTILINE))
    assert described == targets()


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.github-workflows", ".github/workflows/ci.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/bug.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/feature.yml"),
    ],
)
def test_files_for_the_code_host_match_their_schemas(schema: str, path: str) -> None:
    command = [BIN / "check-jsonschema", "--builtin-schema", schema, ROOT / path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ci_runs_targets_that_exist_on_the_supported_pythons() -> None:
    jobs = workflow()["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    called = {word for run in commands if run.startswith("make ") for word in run.split()[1:]}
    assert {"lint", "types", "coverage", "test-system"} <= called <= targets()
    versions = jobs["test"]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_pre_commit_hooks_are_valid_and_run_installed_commands() -> None:
    path = ROOT / ".pre-commit-config.yaml"
    subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", path], check=True)
    hooks = [hook for repo in yaml.safe_load(path.read_text())["repos"] for hook in repo["hooks"]]
    for program in (hook["entry"].split()[0] for hook in hooks):
        assert program == "make" or (BIN / Path(program).name).is_file(), program


def test_every_make_target_named_in_the_docs_exists() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text()
        shell = "".join(re.findall(r"^```(?:sh|bash)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
        named = re.findall(r"`make ([a-z-]+)", text) + re.findall(r"^make ([a-z-]+)", shell, re.MULTILINE)
        assert set(named) <= targets(), page


def test_every_package_is_part_of_the_wheel() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = setuptools["package-dir"]
    for name in list(setuptools["packages"]):
        top = folders.get(name)
        if top is None:
            continue
        for path in (ROOT / top).rglob("__init__.py"):
            inner = path.parent.relative_to(ROOT / top)
            package = ".".join([name, *inner.parts])
            assert package in setuptools["packages"], f"{package} would be left out of the wheel"
