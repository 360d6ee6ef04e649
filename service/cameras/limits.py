"""One camera's counts against its limits -> alerts that are raised, become certain and end.

Nothing here reads a clock or a database. Limits look at the median over `smooth_seconds`; the same rules of
smoothing and hysteresis serve `uepnet video`. What is stale neither raises an alert nor keeps one open.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from uepnet.model.cameras import CameraSettings, Limit
from uepnet.model.smoothing import Breach, Hysteresis, LimitWatch, MedianWindow
from uepnet.service.cameras.wire import Alert, AlertEvent, AlertKind, EndReason, LimitReport, LimitState
from uepnet.service.schemas import Camera

Change = tuple[AlertEvent, Alert]

# What may be wrong with a camera rather than with the crowd.
TEXTS: dict[AlertKind, str] = {
    "silent": "{camera}: no count for {seconds:g} seconds.",
    "frozen": "{camera}: the picture has not changed for {seconds:g} seconds.",
    "unfamiliar": "{camera}: the scene is unlike those that the model was trained on; counts may be wrong.",
    "saturated": "{camera}: the crowd is denser than the model can tell; counts are probably too low.",
}


@dataclass
class _Followed:
    """One limit, or one condition such as `saturated`, with its alert while that is open."""

    kind: AlertKind
    limit: Limit | None
    key: str
    rule: Hysteresis
    smooth_seconds: float
    watch: LimitWatch = field(init=False)
    values: MedianWindow = field(init=False)
    lows: MedianWindow = field(init=False)
    alert: Alert | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew, as after a long gap."""
        self.watch = LimitWatch(self.rule)
        self.values, self.lows = MedianWindow(self.smooth_seconds), MedianWindow(self.smooth_seconds)
        self.value = None

    def resume(self, alert: Alert) -> None:
        """Go on with an alert that was raised before a restart."""
        self.alert = alert
        peak = self.rule.raise_at if alert.peak is None else alert.peak
        self.watch.open = Breach(alert.started, alert.opened, peak, alert.opened)


class CameraWatch:
    """Thread: used on one thread alone."""

    def __init__(self, camera: str, settings: CameraSettings, now: float, known: Iterable[Alert] = ()) -> None:
        """`known` are the camera's alerts from before: open ones go on, and the pause after others is kept."""
        self.camera, self.settings = camera, settings
        self.last_time: float | None = None
        self.last_arrival: float | None = None
        self._began = now
        self._digest = ""
        self._followed = list(_followed(settings))
        self._silent: Alert | None = None
        by_key = {one.key: one for one in self._followed}
        self.orphans: list[Alert] = []  # open alerts of limits that no longer exist
        for alert in known:
            if alert.ended is not None:
                if alert.end_reason == "cleared" and alert.key in by_key:
                    by_key[alert.key].watch.rest(alert.ended)
            elif alert.kind == "silent" and settings.silent_seconds is not None:
                self._silent = alert
            elif alert.key in by_key:
                by_key[alert.key].resume(alert)
            else:
                self.orphans.append(alert)

    def observe(self, seen: Camera, arrived: float | None = None) -> list[Change]:
        """Compare a count with all limits. A count that is not newer than the last one changes nothing.

        `arrived` is when it came here, if not when it was taken: a slow way makes no camera silent.
        """
        if self.last_time is not None and seen.time <= self.last_time:
            return []
        after_gap = self.last_time is not None and seen.time - self.last_time > self.settings.stale_seconds
        self.last_time = seen.time
        self.last_arrival = max(seen.time, arrived or seen.time)
        changes: list[Change] = []
        if self._silent is not None:
            changes.append(("ended", _ended(self._silent, self.last_arrival, "cleared")))
            self._silent = None
        for one in self._followed:
            if after_gap and one.alert is None:
                one.forget()
            changes += self._update(one, seen)
        return changes

    def tick(self, now: float) -> list[Change]:
        """What the passing of time changes: a camera that has fallen silent. Call it about once a second."""
        changes: list[Change] = []
        last = max(self.last_arrival or self._began, self._began)
        quiet_seconds = now - last
        if quiet_seconds >= self.settings.stale_seconds:
            for one in self._followed:
                if one.alert is not None:
                    changes.append(("ended", _ended(one.alert, now, "silent")))
                    one.alert = None
                one.forget()
        seconds = self.settings.silent_seconds
        if seconds is not None and self._silent is None and quiet_seconds >= seconds:
            text = TEXTS["silent"].format(camera=self.camera, seconds=seconds)
            self._silent = Alert(
                id=uuid.uuid4().hex,
                camera=self.camera,
                kind="silent",
                text=text,
                started=last,
                opened=now,
                key="silent",
            )
            changes.append(("opened", self._silent))
        return changes

    def close(self, now: float) -> list[Change]:
        """End all alerts: the camera or its limits are gone."""
        changes: list[Change] = [("ended", _ended(alert, now, "removed")) for alert in self.open_alerts()]
        for one in self._followed:
            one.alert = None
        self._silent = None
        self.orphans = []
        return changes

    def open_alerts(self) -> list[Alert]:
        found = [one.alert for one in self._followed if one.alert is not None]
        return found + self.orphans + ([] if self._silent is None else [self._silent])

    def reports(self, now: float) -> list[LimitReport]:
        stale = self.last_arrival is None or now - self.last_arrival >= self.settings.stale_seconds
        return [
            LimitReport(
                zone=one.limit.zone,
                kind=one.limit.quantity,
                limit=one.limit.value,
                value=None if stale else one.value,
                state=_state(one, stale),
            )
            for one in self._followed
            if one.limit is not None
        ]

    def _update(self, one: _Followed, seen: Camera) -> list[Change]:
        found = self._value_and_low(one, seen)
        if found is None:
            one.watch.update(seen.time, None)
            one.value = None
            return []
        one.value = one.values.add(seen.time, found[0])
        low = one.lows.add(seen.time, found[1])
        breach = one.watch.update(seen.time, one.value)
        certain = one.limit is not None and low >= one.rule.raise_at
        if breach is not None and breach.end is None:
            one.alert = self._opened(one, breach, certain, found[0])
            return [("opened", one.alert)]
        if breach is not None and one.alert is not None:
            alert = one.alert.model_copy(update={"peak": breach.peak, "value": one.value})
            one.alert = None
            return [("ended", _ended(alert, seen.time, "cleared"))]
        if one.alert is not None and certain and not one.alert.certain:
            one.alert = one.alert.model_copy(update={"certain": True, "value": one.value})
            return [("certain", one.alert)]
        return []

    def _value_and_low(self, one: _Followed, seen: Camera) -> tuple[float, float] | None:
        """What the limit is about, and its low end; None where this count does not tell."""
        limit = one.limit
        if limit is None:
            return self._condition(one.kind, seen)
        if limit.zone is None:
            count, low, density = seen.count, seen.range.low if seen.range else None, seen.people_per_square_metre
        else:
            zone = next((zone for zone in seen.zones if zone.name == limit.zone), None)
            if zone is None:
                return None
            count, low, density = zone.count, zone.range.low if zone.range else None, zone.people_per_square_metre
        if limit.quantity == "people":
            return count, -1.0 if low is None else low
        if density is None:
            return None
        return density, -1.0 if low is None or count <= 0 else density * low / count

    def _condition(self, kind: AlertKind, seen: Camera) -> tuple[float, float] | None:
        if kind == "saturated":
            return float(seen.saturated), -1.0
        if kind == "unfamiliar":
            return None if seen.unfamiliar is None else (float(seen.unfamiliar), -1.0)
        before, self._digest = self._digest, seen.digest
        # The first frame after a start has nothing to be compared with: an alert from before goes on.
        return (float(seen.digest == before), -1.0) if before and seen.digest else None

    def _opened(self, one: _Followed, breach: Breach, certain: bool, value: float) -> Alert:
        limit = one.limit
        return Alert(
            id=uuid.uuid4().hex,
            camera=self.camera,
            kind=one.kind,
            zone=None if limit is None else limit.zone,
            limit=None if limit is None else limit.value,
            text=self._text(one, breach.peak),
            started=breach.start,
            opened=breach.raised,
            certain=certain,
            value=None if limit is None else one.value,
            peak=None if limit is None else breach.peak,
            key=one.key,
        )

    def _text(self, one: _Followed, value: float) -> str:
        limit = one.limit
        if limit is None:
            return TEXTS[one.kind].format(camera=self.camera, seconds=one.rule.for_seconds)
        where = f"{self.camera}, zone {limit.zone}" if limit.zone else self.camera
        if limit.quantity == "people":
            return f"{where}: {value:.0f} people, limit {limit.value:g}."
        place = "" if limit.zone else " in the densest 10 m²"
        return f"{where}: {value:.2f} people per square metre{place}, limit {limit.value:g}."


def _followed(settings: CameraSettings) -> Iterator[_Followed]:
    for limit in settings.limits:
        yield _Followed(limit.quantity, limit, limit.key, limit.rule, settings.smooth_seconds)
    conditions: tuple[tuple[AlertKind, float | None], ...] = (
        ("frozen", settings.frozen_seconds),
        ("unfamiliar", settings.unfamiliar_seconds),
        ("saturated", settings.saturated_seconds),
    )
    for kind, seconds in conditions:
        if seconds is not None:
            # A picture is frozen until it changes once; the others are smoothed as counts are.
            smooth_seconds = 0.0 if kind == "frozen" else settings.smooth_seconds
            yield _Followed(kind, None, kind, Hysteresis(1.0, 0.5, seconds), smooth_seconds)


def _state(one: _Followed, stale: bool) -> LimitState:
    if one.alert is not None:
        return "alert"
    if stale or one.value is None:
        return "unknown"
    return "reached" if one.value >= one.rule.raise_at else "clear"


def _ended(alert: Alert, now: float, reason: EndReason) -> Alert:
    return alert.model_copy(update={"ended": max(now, alert.opened), "end_reason": reason})
