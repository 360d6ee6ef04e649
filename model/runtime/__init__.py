"""Tiles in, maps out: one interface over several inference engines.

`Runtime` is what everybody uses. `choice.py` holds the rule by which engine and precision are chosen, `engine.py` what
an engine must offer, and each engine has a file of its own, the only one that imports its package.
"""

from uepnet.model.runtime.choice import (
    LIMITS,
    WORTHWHILE_SPEED,
    EngineChoice,
    Machine,
    choose_on_cpu,
    choose_precision,
    why_unproven,
)
from uepnet.model.runtime.engine import InferenceEngine
from uepnet.model.runtime.runtime import BUNDLED, Runtime

__all__ = [
    "BUNDLED",
    "LIMITS",
    "WORTHWHILE_SPEED",
    "EngineChoice",
    "InferenceEngine",
    "Machine",
    "Runtime",
    "choose_on_cpu",
    "choose_precision",
    "why_unproven",
]
