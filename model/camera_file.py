"""The camera file: YAML -> cameras and receivers of alerts. Every complaint names the file and the line."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from uepnet.model.cameras import CameraEntry, CameraError, Limit, camera_name, check_camera
from uepnet.model.errors import InputError, UepnetError
from uepnet.model.ground import Ground
from uepnet.model.validation import complaint, first_entry
from uepnet.model.zones import Zone

Place = tuple[str | int, ...]
MAX_FILE_BYTES = 16 * 2**20
MERGE = "tag:yaml.org,2002:merge"  # <<: *name takes the keys of another mapping


class Webhook(BaseModel):
    """An address that gets each alert as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(max_length=2048)
    secret_env: str | None = Field(None, description="environment variable with the secret that signs each message")

    @field_validator("url")
    @classmethod
    def check_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a webhook's url looks like https://example.org/hook")
        return url


class Mqtt(BaseModel):
    """A broker that gets counts and alerts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(min_length=1)
    port: int = Field(1883, ge=1, le=65535)
    topic: str = Field("uepnet", pattern=r"^[^#+\s]+$", description="the first part of all topics")
    username: str | None = None
    password_env: str | None = Field(None, description="environment variable with the password")
    tls: bool = False
    home_assistant: bool = Field(False, description="announce every camera to Home Assistant")


class Notify(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    webhooks: tuple[Webhook, ...] = Field(default=(), max_length=16)
    mqtt: Mqtt | None = None


class CameraFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    cameras: Annotated[dict[str, CameraEntry], Field(default_factory=dict)]
    notify: Notify = Notify()

    def secret(self, variable: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
        """A secret from the environment; refused where the variable that is named is not set."""
        if variable is None:
            return None
        if not environment.get(variable):
            raise InputError(f"The camera file names the environment variable {variable}, which is not set.")
        return environment[variable]


def load_cameras(path: Path) -> CameraFile:
    """The whole file, checked; the first thing that is wrong is raised with its line."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"The camera file {path} cannot be read: {error.strerror}.") from None
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"The camera file {path} is larger than {MAX_FILE_BYTES >> 20} MiB.")
    return parse_cameras(content, str(path))


def parse_cameras(content: bytes | str, name: str = "the camera file") -> CameraFile:
    source = _parse(content, name)
    cameras = source.data.get("cameras")
    for key, value in (cameras if isinstance(cameras, dict) else {}).items():
        source.check_camera(key, value)
    try:
        file = CameraFile.model_validate(source.data)
    except ValidationError as error:
        raise source.complaint(error) from None
    for key, entry in file.cameras.items():
        try:
            check_camera(entry)
        except CameraError as error:
            raise source.error(("cameras", key, *error.where), str(error)) from None
    names: dict[str, str] = {}
    for key in file.cameras:
        if camera_name(key) in names:
            raise source.error(("cameras", key), f'The camera "{key}" is there twice.')
        names[camera_name(key)] = key
    return file.model_copy(update={"cameras": {camera_name(key): entry for key, entry in file.cameras.items()}})


@dataclass
class _Source:
    """A parsed file, and the line of every value in it."""

    name: str
    data: dict[Any, Any] = field(default_factory=dict)
    lines: dict[Place, int] = field(default_factory=dict)

    def error(self, where: Place, text: str) -> InputError:
        shown = where
        while shown and shown not in self.lines:
            shown = shown[:-1]
        return InputError(f"{self.name}, line {self.lines.get(shown, 1)}: {text}")

    def complaint(self, error: ValidationError, prefix: Place = ()) -> InputError:
        first = first_entry(error.errors(include_url=False))
        where = (*prefix, *first["loc"])
        field, text = complaint({**first, "loc": where})
        if first["type"] == "extra_forbidden":
            return self.error(where, f'The key "{where[-1]}" is not known{_hint(where)}')
        return self.error(where, f"{field}: {text[:1].lower()}{text[1:]}.")

    def check_camera(self, key: Any, value: Any) -> None:
        """What pydantic would report without a place: names, zones, ground."""
        where: Place = ("cameras", key)
        try:
            camera_name(str(key))
        except ValueError as error:
            raise self.error(where, f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
        if not isinstance(value, dict):
            raise self.error(where, f'The camera "{key}" needs settings below its name: at least source.')
        zones, units = value.get("zones"), value.get("units")
        for index, zone in enumerate(zones if isinstance(zones, list) else []):
            # Zones without units of their own take the camera's, as in CameraSettings.
            whole = {"units": units, **zone} if units in ("pixels", "fractions") and isinstance(zone, dict) else zone
            self._check(Zone, whole, (*where, "zones", index))
        if value.get("ground") is not None:
            self._check(Ground, value["ground"], (*where, "ground"))

    def _check(self, kind: type[BaseModel], value: Any, where: Place) -> None:
        try:
            kind.model_validate(value)
        except ValidationError as error:
            raise self.complaint(error, where) from None
        except UepnetError as error:
            raise self.error(where, str(error)) from None


def _parse(content: bytes | str, name: str) -> _Source:
    source = _Source(name)
    try:
        node = yaml.compose(content, Loader=yaml.SafeLoader)
        if node is None:
            raise InputError(f"{name}, line 1: The file is empty; it needs cameras.")
        data = _build(node, (), source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise InputError(f"{name}, line {line}: This is not valid YAML ({error.problem or error.context}).") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise InputError(f"{name} is not a text in UTF-8.") from None
    if not isinstance(data, dict):
        raise InputError(f"{name}, line 1: The file must begin with cameras: and their names below it.")
    source.data = data
    return source


def _build(node: yaml.Node, where: Place, source: _Source) -> Any:
    """The value of a node; notes the line of each value, and refuses a key that is there twice."""
    source.lines.setdefault(where, node.start_mark.line + 1)
    if len(where) > 16:
        raise source.error(where, "The file is nested too deeply.")
    if isinstance(node, yaml.MappingNode):
        mapping: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == MERGE:
                merged |= _merged(value_node, where, source)
                continue
            key = key_node.value if where == ("cameras",) else _scalar(key_node)
            if not isinstance(key, str):
                key = str(key_node.value)
            source.lines[(*where, key)] = key_node.start_mark.line + 1
            if key in mapping:
                raise source.error((*where, key), f'The key "{key}" is there twice.')
            mapping[key] = _build(value_node, (*where, key), source)
        return merged | mapping
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*where, index), source) for index, item in enumerate(node.value)]
    return _scalar(node)


def _merged(node: yaml.Node, where: Place, source: _Source) -> dict[Any, Any]:
    """What `<<` names: a mapping, or a list of which the first that has a key gives its value."""
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    merged: dict[Any, Any] = {}
    for one in reversed(nodes):
        found = _build(one, where, source)
        if not isinstance(found, dict):
            raise source.error((*where, "<<"), "<< takes the keys of another place: <<: *name.")
        merged |= found
    return merged


def _scalar(node: yaml.Node) -> Any:
    constructor = yaml.SafeLoader("")
    try:
        return constructor.construct_object(node, deep=True)
    finally:
        constructor.dispose()


def _hint(where: Place) -> str:
    """The known key that looks most like a wrong one."""
    kinds: list[type[BaseModel]] = [CameraFile, CameraEntry, Limit, Zone, Ground, Notify, Webhook, Mqtt]
    parent = next((part for part in reversed(where[:-1]) if isinstance(part, str)), None)
    chosen: dict[str, type[BaseModel]] = {
        "limits": Limit,
        "zones": Zone,
        "ground": Ground,
        "webhooks": Webhook,
        "mqtt": Mqtt,
        "notify": Notify,
    }
    if parent in chosen:
        kinds = [chosen[parent]]
    elif len(where) == 1:
        kinds = [CameraFile]
    elif len(where) == 3 and where[0] == "cameras":
        kinds = [CameraEntry]
    known = sorted({name for kind in kinds for name in kind.model_fields})
    near = get_close_matches(str(where[-1]), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}."
