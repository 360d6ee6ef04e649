"""Errors of training settings, each as one sentence with the name that the user gave the setting by."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from pydantic import ValidationError

from uepnet.model.validation import complaint


def flag(field: str) -> str:
    """The flag of `uepnet train` that sets a field."""
    return "--" + field.replace("_", "-")


def sentence(error: ValidationError, known: Iterable[str], source: str, flags: Collection[str]) -> str:
    """The first complaint, with the source of the value: its flag for a field in `flags`, else `source`."""
    first = error.errors(include_url=False)[0]
    text = complaint(first)[1].removeprefix("it ")
    where = f"{source}: " if source else ""
    if not first["loc"]:
        return f"{where}{text}."
    field = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return where + unknown_setting(field, known)
    if first["type"] == "missing":
        return f"{where}The setting {field} is missing."
    if first["type"] == "string_pattern_mismatch":
        text = "must be cpu, cuda or cuda:N"
    if field in flags:  # its value is a text
        return f"{flag(field)} {text}, not {first['input']}."
    return f"{where}{field} {text}, not {first['input']!r}."


def unknown_setting(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"There is no setting {name!r}" + (f": did you mean {near[0]!r}?" if near else ".")
