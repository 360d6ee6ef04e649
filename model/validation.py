"""Validation errors of pydantic as text for the person who wrote the value: no word of pydantic's own."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

# pydantic's type of an error, or the beginning of several: what is wrong, with the values that pydantic gives.
WORDS = {
    "missing": "it is missing",
    "extra_forbidden": "this key is not known",
    "int_": "it must be a whole number",
    "float_": "it must be a number",
    "decimal_": "it must be a number",
    "finite_number": "it must be a finite number",
    "bool_": "it must be true or false",
    "string_too_short": "it must have at least {min_length} characters",
    "string_too_long": "it must have at most {max_length} characters",
    "string_pattern_mismatch": "it must match the pattern {pattern}",
    "string_": "it must be a text",
    "path_type": "it must be a path",
    "byte_size": "it must be a size in bytes, such as 1048576 or 32MiB",
    "literal_error": "it must be {expected}",
    "greater_than_equal": "it must be at least {ge}",
    "greater_than": "it must be greater than {gt}",
    "less_than_equal": "it must be at most {le}",
    "less_than": "it must be less than {lt}",
    "multiple_of": "it must be a multiple of {multiple_of}",
    "too_short": "it must have at least {min_length} items",
    "too_long": "it must have at most {max_length} items",
    "tuple_type": "it must be a list",
    "list_type": "it must be a list",
    "dict_type": "it must hold keys with their values",
    "model_": "it must hold keys with their values",
}
MAX_SHOWN = 80  # characters of a wrong value that an error repeats


def first_complaint(error: ValidationError) -> tuple[str, str]:
    """(field, text) of the first error: `zones.0.name` and what is wrong with it, without a full stop."""
    return complaint(first_entry(error.errors(include_url=False)))


def first_entry(entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A key that is misspelt comes first: that the right one is missing follows from it."""
    return min(entries, key=lambda entry: entry["type"] != "extra_forbidden")


def complaint(entry: Mapping[str, Any]) -> tuple[str, str]:
    """(field, text) of one entry of `ValidationError.errors()`; the field is empty where the whole value is wrong."""
    location: Sequence[int | str] = entry["loc"]
    return ".".join(str(part) for part in location if part != "[key]"), _text(entry)


def shown(value: object) -> str:
    """A wrong value, cut where it is long."""
    text = str(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _text(entry: Mapping[str, Any]) -> str:
    kind, values = entry["type"], entry.get("ctx", {})
    if kind == "value_error":  # raised by our own checks
        return str(entry["msg"]).removeprefix("Value error, ").rstrip(".")
    if kind == "json_invalid":
        place = re.search(r"line (\d+) column (\d+)", str(values.get("error")))
        return "it is not valid JSON" + (f" (line {place[1]}, column {place[2]})" if place else "")
    words = next((words for beginning, words in WORDS.items() if kind.startswith(beginning)), "the value is not valid")
    if values.get("min_length") == 1:
        return "it must not be empty"
    return words.format(**{name: _plain(value) for name, value in values.items()})


def _plain(value: object) -> str:
    """A bound without needless digits; names without quotes."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).replace("'", "")
