"""All settings of the service, in one frozen class.

Each field is an environment variable (`UEPNET_MAX_REQUESTS`) and, secrets apart, a flag of `uepnet serve`
(`--max-requests`); its description is the flag's help. A flag wins over the environment.
"""

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, Self, get_args, get_origin

from pydantic import ByteSize, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from uepnet.model.errors import InputError
from uepnet.model.shapes import MAX_BATCH_PIXELS
from uepnet.model.validation import complaint, shown

PREFIX = "UEPNET_"
MIB = 2**20
NO_KEY = "it is set but holds no key; give a key, or unset the variable"

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
# In the environment a list is its items with commas between: NoDecode keeps pydantic from expecting JSON.
Secrets = Annotated[tuple[SecretStr, ...], NoDecode]
Texts = Annotated[tuple[str, ...], NoDecode]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for all interfaces")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    insecure: bool = Field(False, description="allow a host beyond this machine without API keys: 1 or 0")
    allowed_hosts: Texts = Field(
        (),
        description="comma-separated host names that requests may use; checked only without API keys, "
        "when localhost is always allowed",
    )

    model: Path | None = Field(None, description="model directory; without it the bundled model")
    models_dir: Path | None = Field(
        None, description="folder with the model directories that a reload may load; without it only --model"
    )
    device: str = Field(
        "auto",
        description="auto, cpu, cuda, tensorrt or intel-gpu; cuda:1 is the second GPU; only auto falls back to the CPU",
    )
    decoding: Literal["auto", "argmax"] = Field(
        "auto", description="auto is the model's own decoding; argmax is the paper's, and gives no ranges"
    )
    engine: Literal["auto", "onnxruntime", "openvino"] = Field("auto", description="inference engine")
    precision: Literal["auto", "fp32", "fp16", "bf16", "int8"] = Field(
        "auto", description="number format of the network; auto never takes bf16"
    )
    threads: int = Field(0, ge=0, le=1024, description="threads for inference on the CPU; 0 for one per core")
    decode_threads: int = Field(
        0, ge=0, le=1024, description="images decoded or drawn at the same time; 0 for one per core"
    )

    max_requests: int = Field(
        32,
        ge=1,
        le=4096,
        description="maximum number of concurrent requests, each with a thread; further requests get 429",
    )
    max_body_bytes: ByteSize = Field(
        ByteSize(32 * MIB), ge=1024, description="maximum size of a request body; larger ones get 413"
    )
    max_buffered_bytes: ByteSize = Field(
        ByteSize(512 * MIB),
        ge=1024,
        description="memory for the bodies and answers of all requests; requests that do not fit get 429",
    )
    max_pixels: int = Field(
        50_000_000, ge=1024, le=1_000_000_000, description="maximum number of pixels of an image; larger images get 413"
    )
    max_side: int = Field(
        32_768, ge=64, le=65_535, description="maximum width or height of an image; larger images get 413"
    )
    max_batch_images: int = Field(
        32, ge=1, le=1024, description="maximum number of images in one request to /v1/count/batch"
    )
    max_connections: int = Field(1024, ge=1, le=65536, description="maximum number of open connections")

    deadline_seconds: Seconds = Field(
        60.0, description="maximum time to answer an admitted request; after it the answer is 504"
    )
    decode_seconds: Seconds = Field(
        10.0, description="maximum processor time to decode one image; images that take longer get 413"
    )
    max_wait_seconds: Seconds = Field(
        20.0, description="requests that would have to wait longer than this for earlier requests get 429"
    )
    receive_seconds: Seconds = Field(
        30.0, description="maximum time for a request to arrive; after it the answer is 408"
    )
    send_seconds: Seconds = Field(30.0, description="maximum time in which a client must read 256 KiB of an answer")
    min_send_rate: ByteSize = Field(
        ByteSize(MIB),
        ge=1024,
        description="minimum rate at which a client must read a large answer, in bytes per second",
    )
    drain_seconds: Seconds = Field(
        90.0, description="maximum time for admitted requests to finish after SIGTERM; use more than --deadline-seconds"
    )
    stall_seconds: Seconds = Field(
        120.0, description="maximum time of one batch on the device; after it the liveness check fails"
    )

    batch_window_seconds: float = Field(
        0.003,
        ge=0,
        le=1,
        description="how long an idle device waits for more tiles; only on devices where batches help",
    )
    max_batch_tiles: int = Field(
        8, ge=1, le=32, description="maximum number of tiles in a batch; only on devices where batches help"
    )
    max_batch_pixels: int = Field(
        MAX_BATCH_PIXELS,
        ge=1024,
        description="maximum number of pixels in a batch; limits the memory used on the device",
    )

    cameras: Path | None = Field(None, description="camera file (YAML): zones, ground, limits and receivers of alerts")
    history: str | None = Field(
        None,
        description="where counts are kept: a SQLite or PostgreSQL URL, or off (default: a SQLite file in the user's"
        " state directory)",
    )
    history_raw_hours: float = Field(48.0, gt=0, le=1e6, description="how long every single count is kept")
    history_minute_days: float = Field(30.0, gt=0, le=1e5, description="how long means per minute are kept")
    history_hour_days: float = Field(
        730.0, gt=0, le=1e5, description="how long means per hour are kept; means per day are never deleted"
    )
    max_cameras: int = Field(256, ge=0, le=100_000, description="maximum number of cameras whose latest count is kept")
    camera_stale_seconds: Seconds = Field(
        3600.0, description="a camera without settings is forgotten after this time without a count"
    )
    max_event_streams: int = Field(
        64, ge=0, le=10_000, description="maximum number of concurrent listeners to /v1/events"
    )

    api_keys: Secrets = Field(
        (),
        description="comma-separated API keys; if any is set, all requests need one, except the liveness check "
        "and the page's files",
    )
    admin_key: SecretStr | None = Field(None, description="key for admin actions, which are refused without it")
    cors_origins: Texts = Field((), description="comma-separated origins whose web pages may call the service")

    log_format: Literal["plain", "json"] = Field("plain", description="format of the log lines")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe level that is logged"
    )

    @field_validator("api_keys", "cors_origins", "allowed_hosts", mode="before")
    @classmethod
    def split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(item.strip() for item in value.split(",") if item.strip())
        return value

    @field_validator("api_keys", mode="before")
    @classmethod
    def check_some_key(cls, value: object) -> object:
        """A blank value is an accident (an empty variable in a script, say), never a wish for no keys."""
        if isinstance(value, str) and not value.strip(" ,\t\r\n"):
            raise ValueError(NO_KEY)
        return value

    @field_validator("api_keys")
    @classmethod
    def check_keys(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in keys:
            check_key(key)
        return keys

    @field_validator("admin_key")
    @classmethod
    def check_admin_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None:
            check_key(key)
        return key

    @field_validator("device")
    @classmethod
    def check_device(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|(cuda|tensorrt|intel-gpu)(:\d+)?", device):
            raise ValueError("a device is auto, cpu, cuda, tensorrt or intel-gpu (cuda:1 is the second)")
        return device

    @field_validator("cors_origins")
    @classmethod
    def check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and (not origin.startswith(("http://", "https://")) or origin.endswith("/")):
                raise ValueError(f"an origin looks like https://example.org, not {origin!r}")
        return origins

    @field_validator("allowed_hosts")
    @classmethod
    def check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host):
                raise ValueError(f"a host is a name or an address without port, like count.example.org, not {host!r}")
        return tuple(host.lower() for host in hosts)

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.max_buffered_bytes < self.max_body_bytes:
            raise ValueError(
                f"max_buffered_bytes ({int(self.max_buffered_bytes)}) must hold at least one body"
                f" (max_body_bytes is {int(self.max_body_bytes)})"
            )
        if self.admin_key is not None and self.admin_key in self.api_keys:
            raise ValueError("UEPNET_ADMIN_KEY must differ from every key in UEPNET_API_KEYS")
        if not self.api_keys and not self.insecure and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} is reachable from other machines and UEPNET_API_KEYS is not set: set API keys,"
                " or allow access without keys with UEPNET_INSECURE=1"
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether a host name or address (IPv6 with or without brackets) means this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_key(key: SecretStr) -> None:
    text = key.get_secret_value()
    if len(text) < 8 or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a key needs at least 8 printable ASCII characters and no blank")


def flag(field: str) -> str:
    return "--" + field.replace("_", "-")


UNITS = {  # by a setting's name, or by its end
    "_seconds": "SECONDS",
    "_hours": "HOURS",
    "_days": "DAYS",
    "_bytes": "BYTES",
    "_rate": "BYTES",
    "_pixels": "PIXELS",
    "_side": "PIXELS",
    "model": "DIR",
    "models_dir": "DIR",
    "cameras": "FILE",
    "history": "URL",
}


def placeholder(field: str) -> str:
    """What stands for a flag's value in the help: the choices, or the unit."""
    kind = Settings.model_fields[field].annotation
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    for ending, unit in UNITS.items():
        if field == ending or (ending.startswith("_") and field.endswith(ending)):
            return unit
    if kind is bool:
        return "{0,1}"
    if kind is int:
        return "N"
    return "LIST" if kind == tuple[str, ...] else field.upper()


def is_secret(field: str) -> bool:
    """Secrets come from the environment alone: every user of the machine can read a command line."""
    return field in ("api_keys", "admin_key")


def load_settings(flags: Mapping[str, str] | None = None) -> Settings:
    """Settings from flags and environment; a wrong value raises one sentence that names the flag or variable."""
    given = dict(flags or {})
    _check_blank_secrets(os.environ)
    try:
        return Settings(**given)  # type: ignore[arg-type]  # texts, as from the environment
    except ValidationError as error:
        raise InputError(_sentence(error, given)) from None


def _check_blank_secrets(environment: Mapping[str, str]) -> None:
    """pydantic ignores empty variables; for a key that would mean a service open to everyone."""
    for name, value in environment.items():
        field = name.lower().removeprefix(PREFIX.lower())
        if name.upper().startswith(PREFIX) and is_secret(field) and not value.strip(" ,"):
            raise InputError(f"{name.upper()}: {NO_KEY}.")


def _sentence(error: ValidationError, flags: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    field, text = complaint(first)
    if not text[:2].isupper():
        text = text[:1].lower() + text[1:]
    if not field:
        return f"Settings: {text}."
    field = field.partition(".")[0]
    where = flag(field) if field in flags else PREFIX + field.upper()
    if is_secret(field):
        return f"{where}: {text}."
    return f"{where} = {shown(first['input'])}: {text}."


def unknown_variables(environment: Iterable[str] = os.environ) -> list[str]:
    """A sentence for each UEPNET_* variable that is not a setting, which is most likely a typing error."""
    known = [PREFIX + field.upper() for field in Settings.model_fields]
    sentences = []
    for name in sorted(environment):
        # The camera file names variables of its own for secrets.
        if name.startswith(PREFIX) and name not in known and not name.endswith(("_SECRET", "_PASSWORD")):
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            sentences.append(f"{name} is not a setting of the service{hint}")
    return sentences
