"""All settings of the service, in one frozen class.

Each field is an environment variable (`UEPNET_MAX_REQUESTS`) and, secrets apart, a flag of `uepnet serve`
(`--max-requests`); its description is the flag's help. A flag wins over the environment.
"""

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ByteSize, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from uepnet.model.errors import InputError
from uepnet.model.shapes import MAX_BATCH_PIXELS

PREFIX = "UEPNET_"
MIB = 2**20

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
# In the environment a list is its items with commas between: NoDecode keeps pydantic from expecting JSON.
Secrets = Annotated[tuple[SecretStr, ...], NoDecode]
Texts = Annotated[tuple[str, ...], NoDecode]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for all interfaces")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")

    model: Path | None = Field(None, description="model directory; without it the bundled model")
    models_dir: Path | None = Field(
        None,
        description="folder whose models a reload may choose from; without it only --model's own",
    )
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N; cuda refuses to start without CUDA")
    precision: Literal["auto", "fp32", "fp16", "int8"] = Field("auto", description="which ONNX file to run")
    threads: int = Field(0, ge=0, le=1024, description="threads of CPU inference; 0 for all cores")
    decode_threads: int = Field(
        0, ge=0, le=1024, description="images decoded and drawn at the same time; 0 for as many as cores"
    )

    max_requests: int = Field(
        32, ge=1, le=4096, description="requests in the house at once, each with a thread; past it 429"
    )
    max_body_bytes: ByteSize = Field(ByteSize(32 * MIB), ge=1024, description="largest body; past it 413")
    max_buffered_bytes: ByteSize = Field(
        ByteSize(512 * MIB), ge=1024, description="bytes of all bodies and answers under way; past it 429"
    )
    max_pixels: int = Field(50_000_000, ge=1024, le=1_000_000_000, description="largest image; past it 413")
    max_batch_images: int = Field(32, ge=1, le=1024, description="images in one request to /v1/count/batch")
    max_connections: int = Field(1024, ge=1, le=65536, description="open connections; past it closed at once")

    deadline_seconds: Seconds = Field(60.0, description="time to answer an admitted request; past it 504")
    receive_seconds: Seconds = Field(30.0, description="time for a request to arrive whole; past it 408")
    send_seconds: Seconds = Field(30.0, description="time for the client to take 256 KiB of an answer")
    drain_seconds: Seconds = Field(30.0, description="time for admitted requests to finish after SIGTERM")
    stall_seconds: Seconds = Field(120.0, description="a batch longer than this on the device fails liveness")

    batch_window_seconds: float = Field(
        0.003, ge=0, le=1, description="how long an idle device waits for a fuller batch, where batches help"
    )
    max_batch_tiles: int = Field(8, ge=1, le=32, description="tiles in one batch, where batches help")
    max_batch_pixels: int = Field(
        MAX_BATCH_PIXELS, ge=1024, description="pixels in one batch; bounds the device's memory"
    )

    max_cameras: int = Field(256, ge=0, le=100_000, description="cameras remembered at once")
    camera_stale_seconds: Seconds = Field(3600.0, description="a camera silent for so long is forgotten")
    max_event_streams: int = Field(64, ge=0, le=10_000, description="listeners to /v1/events at once")

    api_keys: Secrets = Field((), description="comma-separated keys; with one set, all but liveness needs it")
    admin_key: SecretStr | None = Field(None, description="key for model reloads; without it they are off")
    cors_origins: Texts = Field((), description="comma-separated origins whose pages may call")

    log_format: Literal["plain", "json"] = Field("plain", description="how log lines look")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="the least that is logged")

    @field_validator("api_keys", "cors_origins", mode="before")
    @classmethod
    def split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(item.strip() for item in value.split(",") if item.strip())
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
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise ValueError("a device is auto, cpu, cuda or cuda:N")
        return device

    @field_validator("cors_origins")
    @classmethod
    def check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and (not origin.startswith(("http://", "https://")) or origin.endswith("/")):
                raise ValueError(f"an origin looks like https://example.org, not {origin!r}")
        return origins

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.max_buffered_bytes < self.max_body_bytes:
            raise ValueError(
                f"max_buffered_bytes ({int(self.max_buffered_bytes)}) must hold at least one body"
                f" (max_body_bytes is {int(self.max_body_bytes)})"
            )
        return self


def check_key(key: SecretStr) -> None:
    text = key.get_secret_value()
    if len(text) < 8 or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a key needs at least 8 printable ASCII characters and no blank")


def flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def is_secret(field: str) -> bool:
    """Secrets come from the environment alone: a command line is everyone's to read."""
    return field in ("api_keys", "admin_key")


def load_settings(flags: Mapping[str, str] | None = None) -> Settings:
    """Settings from flags and environment; a wrong value is one sentence that names where it came from."""
    given = dict(flags or {})
    try:
        return Settings(**given)  # type: ignore[arg-type]  # texts, as from the environment
    except ValidationError as error:
        raise InputError(_sentence(error, given)) from None


def _sentence(error: ValidationError, flags: Mapping[str, str]) -> str:
    complaint = error.errors(include_url=False)[0]
    text = complaint["msg"].removeprefix("Value error, ").rstrip(".")
    text = text[:1].lower() + text[1:]
    if not complaint["loc"]:
        return f"Settings: {text}."
    field = str(complaint["loc"][0])
    where = flag(field) if field in flags else PREFIX + field.upper()
    if is_secret(field):
        return f"{where}: {text}."
    return f"{where} = {complaint['input']!s}: {text}."


def unknown_variables(environment: Iterable[str] = os.environ) -> list[str]:
    """A sentence for each UEPNET_* variable that is no setting: most likely a slip of the pen."""
    known = [PREFIX + field.upper() for field in Settings.model_fields]
    sentences = []
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            sentences.append(f"{name} is no setting of the service{hint}")
    return sentences
