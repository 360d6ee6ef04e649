"""The targets of fuzzing on good, damaged and arbitrary inputs, and on all that fuzzing has found before."""

import random
from pathlib import Path

import pytest
from fuzz.targets import TARGETS, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

FOUND = sorted(Path(__file__).parent.glob("found/*/*"))


def damaged(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(3)
        if kind == 0:
            changed[at : at + rng.randrange(16)] = b""
        elif kind == 1:
            changed[at:at] = rng.choice((b"\xff" * 4, b"-1", b"1e999", b"[", b"\0", b"NaN", b'"'))
        else:
            changed[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(changed)


@pytest.mark.parametrize("target", TARGETS)
def test_good_and_damaged_inputs_bring_no_surprise(target: str) -> None:
    rng = random.Random(1)
    for content in seeds(target):
        TARGETS[target](content)
        for _ in range(40):
            TARGETS[target](damaged(content, rng))


@pytest.mark.parametrize("target", TARGETS)
@given(content=st.binary(max_size=300))
@settings(max_examples=60, deadline=None)
def test_arbitrary_inputs_bring_no_surprise(target: str, content: bytes) -> None:
    TARGETS[target](content)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_what_fuzzing_found_is_mended(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())
