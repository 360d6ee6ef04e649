"""Validation errors of pydantic as text for the person who wrote the value."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError


def first_complaint(error: ValidationError) -> tuple[str, str]:
    """(field, text) of the first error: `zones.0.name` and what is wrong with it, without a full stop."""
    return complaint(error.errors(include_url=False, include_input=False)[0])


def complaint(entry: Mapping[str, Any]) -> tuple[str, str]:
    """(field, text) of one entry of `ValidationError.errors()`; the field is empty where the whole value is wrong."""
    location: Sequence[int | str] = entry["loc"]
    text = str(entry["msg"]).removeprefix("Value error, ").rstrip(".")
    return ".".join(str(part) for part in location), text
