"""What may be changed when a run is resumed: where its data is and how the machine works, and the number of steps."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uepnet.training.config import Config

NEVER = ("out", "preset", "config", "dataset", "fold", "no_scale")
FOLDERS = ("empty", "degraded")
ROUNDING = ("threads", "device", "precision", "compile")  # sums are made in another order, or with other digits


def resumed(args: argparse.Namespace) -> "tuple[Config, list[str]]":
    """The settings of the run to be resumed with the changes that were given, and what is to be said of them."""
    from uepnet.model.errors import InputError
    from uepnet.training.config import Config
    from uepnet.training.config_errors import flag

    run: Path = args.resume
    old = Config.read(run)
    for name in NEVER:
        if getattr(args, name):
            raise InputError(f"{flag(name)} does not go with --resume: a run keeps its data and settings.")
    new = _with_flags(old, args)
    changes = {name: value for name, value in new if value != getattr(old, name)}
    for name in changes:
        if name not in _possible():
            raise InputError(
                f"{flag(name)} cannot change when a run is resumed: {run} has {_shown(getattr(old, name))}. Leave it "
                f"out, or start a new run with --init {run}."
            )
    return new, list(_notes(old, changes))


def _with_flags(old: "Config", args: argparse.Namespace) -> "Config":
    from uepnet.commands.shared.sources import pairs
    from uepnet.commands.shared.training_options import given
    from uepnet.training.config import Config

    flags = given(args)
    for name in FOLDERS:
        if flags.get(name):
            flags[name] = str(Path(flags[name]).resolve())
    data: Any = old.data
    if args.root:
        names = ",".join(name for name, _ in old.data)
        data = tuple((name, str(Path(root).resolve())) for name, root in pairs(names, args.root))
    return Config.of(dict(old) | flags | {"data": data}, flags=flags)


def _possible() -> set[str]:
    from uepnet.training.config import Config

    machine = {
        name
        for name, field in Config.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra["group"] == "machine"
    }
    return machine | {"data", "steps", *FOLDERS}


def _notes(old: "Config", changes: "dict[str, Any]") -> "list[str]":
    from uepnet.training.config_errors import flag

    notes = [
        f"{flag(name)} is {_shown(value)} from here on; it was {_shown(getattr(old, name))}."
        for name, value in changes.items()
        if name != "data"
    ]
    if "data" in changes:
        notes.append("The data is read from " + ", ".join(root for _, root in changes["data"]) + " from here on.")
    if "steps" in changes and old.schedule == "cosine":
        notes.append("The learning rate follows the new number of steps from here on.")
    rounding = [flag(name) for name in ROUNDING if name in changes]
    if rounding:
        notes.append(f"With another {' and '.join(rounding)} the weights differ in their last digits.")
    return notes


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return str(value) if value != "" else "none"
