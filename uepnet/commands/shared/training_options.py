"""The flags of training, made from the fields of `training.config.Config`, and what was given with them."""

import argparse
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

# Beside the fields of Config, what `--config FILE` may hold.
FILE_KEYS = ("dataset", "root", "preset")


def add_settings(parser: argparse.ArgumentParser, only: Collection[str] = (), title: str = "") -> None:
    """A flag for each setting in groups; with `only`, for these alone in one group with this title."""
    from uepnet.training.config import Config

    groups: dict[str, argparse._ArgumentGroup] = {}
    for name, field in Config.model_fields.items():
        extra = field.json_schema_extra
        if not isinstance(extra, dict) or (only and name not in only):
            continue
        group = title or str(extra["group"])
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        groups[group].add_argument("--" + name.replace("_", "-"), **_how(name, field))


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given as flags, as text: `Config` parses and checks them."""
    from uepnet.training.config import Config

    settings = {name for name, field in Config.model_fields.items() if field.json_schema_extra}
    return {name: value for name, value in vars(args).items() if name in settings and value is not None}


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a YAML file (config.json of a run is one, too), with the names of the flags or the fields."""
    import yaml

    from uepnet.model.errors import InputError
    from uepnet.training.config import Config
    from uepnet.training.config_errors import unknown_setting

    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f" (line {place.line + 1})" if place else ""
        raise InputError(f"{path} is not valid YAML{where}.") from None
    if not isinstance(found, Mapping):
        raise InputError(f"{path} must hold settings, one `name: value` per line.")
    values = {str(name).replace("-", "_"): value for name, value in found.items()}
    known = [*Config.model_fields, *FILE_KEYS]
    for name in values:
        if name not in known:
            raise InputError(f"{path}: {unknown_setting(name, known)}")
    for name in FILE_KEYS:
        if not isinstance(values.get(name, ""), str):
            raise InputError(f"{path}: {name} must be a text; several are separated by commas.")
    return values


def _how(name: str, field: "FieldInfo") -> dict[str, Any]:
    """The arguments of `add_argument` for a setting."""
    assert isinstance(field.json_schema_extra, dict)
    unit = field.json_schema_extra["unit"]
    how: dict[str, Any] = {"default": None, "help": _help(name, field).replace("%", "%%")}
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if field.annotation is bool:
        return how | {"action": argparse.BooleanOptionalAction}
    if choices:
        return how | {"choices": choices, "type": type(choices[0])}
    if get_origin(field.annotation) is tuple:
        how["nargs"] = 2 if isinstance(unit, tuple) else "+"
    return how | {"metavar": unit}


def _help(name: str, field: "FieldInfo") -> str:
    from uepnet.training.config import PRESETS

    values = {preset: changes.get(name, field.default) for preset, changes in PRESETS.items()}
    shown = [f"default: {_text(values['fast'])}"] if values["fast"] not in ("", ()) else []
    if values["paper"] != values["fast"]:
        shown.append(f"paper: {_text(values['paper'])}")
    return f"{field.description} ({'; '.join(shown)})" if shown else str(field.description)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
