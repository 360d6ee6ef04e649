"""Inference engines in tests."""

from importlib.util import find_spec

import pytest


def need_engine(name: str) -> str:
    """Skip where the engine is not installed. Not importorskip: importing OpenVINO reports to its maker."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return name
