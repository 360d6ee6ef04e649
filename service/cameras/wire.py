"""What the service says of cameras, limits and alerts. Needs no server package, so the client reads it too.

Times are seconds since 1970, UTC.
"""

from typing import Literal

from pydantic import Field

from uepnet.model.cameras import CameraSettings
from uepnet.service.schemas import ModelSummary, RangeAnswer, WireModel, ZoneAnswer

AlertKind = Literal["people", "per_square_metre", "silent", "frozen", "unfamiliar", "saturated"]
AlertEvent = Literal["opened", "certain", "ended", "acknowledged"]
EndReason = Literal["cleared", "silent", "removed"]
LimitState = Literal["clear", "reached", "alert", "unknown"]


class LimitReport(WireModel):
    """One limit of a camera and how it stands."""

    zone: str | None
    kind: Literal["people", "per_square_metre"]
    limit: float
    value: float | None = Field(description="the median over smooth_seconds; null where nothing is known")
    state: LimitState = Field(description="reached: not yet for for_seconds; unknown: no recent count")


class CameraState(WireModel):
    """A camera as it stands; also the data of each `count` event of /v1/events."""

    camera: str
    count: float | None = Field(description="null while the camera is silent")
    range: RangeAnswer | None
    zones: list[ZoneAnswer]
    width: int | None
    height: int | None
    warnings: list[str]
    time: float | None = Field(description="of the last count")
    model: ModelSummary | None
    request_id: str | None
    people_per_square_metre: float | None = None
    last_count: float | None = Field(default=None, description="the last count, however old")
    last_time: float | None = None
    silent: bool = Field(default=False, description="no count for silent_seconds")
    configured: bool = Field(default=False, description="in the camera file or set over HTTP")
    limits: list[LimitReport] = Field(default_factory=list)
    alerts: int = Field(default=0, description="open alerts")
    picture: float | None = Field(default=None, description="time of the picture that is kept, else null")


class CameraStates(WireModel):
    cameras: list[CameraState]


class CameraDetail(CameraState):
    settings: CameraSettings
    overrides_file: bool = Field(default=False, description="the settings were set over HTTP and override the file's")


class Alert(WireModel):
    id: str
    camera: str
    kind: AlertKind
    zone: str | None = None
    limit: float | None = None
    text: str = Field(description="one sentence, for people")
    started: float = Field(description="when the limit was first reached")
    opened: float = Field(description="when the alert was raised: for_seconds later")
    ended: float | None = None
    end_reason: EndReason | None = None
    certain: bool = Field(default=False, description="even the low end of the range reached the limit")
    value: float | None = Field(default=None, description="the smoothed value at the last change")
    peak: float | None = None
    acknowledged: float | None = Field(default=None, description="when somebody acknowledged it")
    key: str = Field(default="", description="which limit of the camera raised it")


class Alerts(WireModel):
    open: list[Alert]
    recent: list[Alert] = Field(description="ended, the newest first")


class AlertMessage(WireModel):
    """What webhooks and MQTT deliver, and the data of each `alert` event of /v1/events."""

    event: AlertEvent
    id: str = Field(description="of this message: the same in every attempt to deliver it")
    time: float
    alert: Alert


class HistoryPoint(WireModel):
    """A count, or a bucket of counts that begins at `time`."""

    time: float
    mean: float
    min: float
    max: float
    counts: int
    low: float | None = Field(description="mean of the ranges' low ends")
    high: float | None
    people_per_square_metre: float | None
    max_per_square_metre: float | None


class HistorySeries(WireModel):
    zone: str | None = Field(description="null for the whole frame")
    points: list[HistoryPoint]


class HistoryAnswer(WireModel):
    camera: str
    start: float
    end: float
    resolution: Literal["raw", "minute", "hour", "day"]
    series: list[HistorySeries]
