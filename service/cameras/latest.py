"""The latest count per camera and zone, for Prometheus and for a list; and the streams of events."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from uepnet.service.errors import Refused
from uepnet.service.metrics import Metrics
from uepnet.service.schemas import Camera
from uepnet.service.settings import Settings

HEARTBEAT_SECONDS = 15.0


class Cameras(Collector):
    """At most max_cameras; those that are not configured and silent for camera_stale_seconds are forgotten.

    Thread: used on the event loop alone.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        is_configured: Callable[[str], bool] = lambda name: False,
        stale_seconds: Callable[[str], float] = lambda name: 60.0,
    ) -> None:
        self._settings, self._metrics = settings, metrics
        self._is_configured, self._stale_seconds = is_configured, stale_seconds
        self._latest: dict[str, Camera] = {}
        self._listeners: set[Listener] = set()
        metrics.add(self)

    def check_room(self, name: str) -> None:
        """Refuse a new camera where there is no room; to be asked before its image is counted."""
        self._forget_stale()
        if name not in self._latest and len(self._latest) >= self._settings.max_cameras:
            self._metrics.reject("cameras")
            detail = f"{self._settings.max_cameras} cameras are known, and no more are allowed."
            raise Refused("too-many-cameras", detail, retry_after_seconds=60)

    def note(self, camera: Camera) -> bool:
        """Take over a count; whether it is the newest of its camera."""
        self.check_room(camera.camera)
        before = self._latest.get(camera.camera)
        if before is not None and camera.time < before.time:
            return False
        self._latest[camera.camera] = camera
        return True

    def latest(self) -> list[Camera]:
        self._forget_stale()
        return sorted(self._latest.values(), key=lambda camera: camera.camera)

    def get(self, name: str) -> Camera | None:
        self._forget_stale()
        return self._latest.get(name)

    def listen(self) -> "Listener":
        if len(self._listeners) >= self._settings.max_event_streams:
            self._metrics.reject("streams")
            raise Refused("too-many-streams", "Too many listeners to events; try again later.")
        listener = Listener(self)
        self._listeners.add(listener)
        self._metrics.event_streams.set(len(self._listeners))
        return listener

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def tell(self, event: str, key: str, data: str) -> None:
        for listener in self._listeners:
            listener.put(event, key, data)

    def leave(self, listener: "Listener") -> None:
        self._listeners.discard(listener)
        self._metrics.event_streams.set(len(self._listeners))

    def end_streams(self) -> None:
        for listener in self._listeners:
            listener.end()

    def collect(self) -> Iterable[Metric]:
        """Read at each scrape. A silent camera keeps only the time when it was counted last."""
        now = time.time()
        cameras = self.latest()

        def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"uepnet_{name}", text, labels=labels)

        number = GaugeMetricFamily("uepnet_cameras", "Cameras remembered", value=len(cameras))
        people = gauge("camera_people", "Latest count of a camera", "camera")
        low = gauge("camera_people_low", "Low end of the range of a camera's count", "camera")
        high = gauge("camera_people_high", "High end of the range of a camera's count", "camera")
        densest = gauge("camera_people_per_square_metre", "Density in the densest 10 square metres", "camera")
        zones = gauge("zone_people", "Latest count of a zone", "camera", "zone")
        zone_low = gauge("zone_people_low", "Low end of the range of a zone's count", "camera", "zone")
        zone_high = gauge("zone_people_high", "High end of the range of a zone's count", "camera", "zone")
        density = gauge("zone_people_per_square_metre", "Mean density of a zone", "camera", "zone")
        seen = gauge("camera_last_seen_timestamp_seconds", "When a camera was counted last", "camera")
        for camera in cameras:
            name = [camera.camera]
            seen.add_metric(name, camera.time)
            if now - camera.time >= self._stale_seconds(camera.camera):
                continue
            people.add_metric(name, camera.count)
            if camera.range is not None:
                low.add_metric(name, camera.range.low)
                high.add_metric(name, camera.range.high)
            if camera.people_per_square_metre is not None:
                densest.add_metric(name, camera.people_per_square_metre)
            for zone in camera.zones:
                both = [camera.camera, zone.name]
                zones.add_metric(both, zone.count)
                if zone.range is not None:
                    zone_low.add_metric(both, zone.range.low)
                    zone_high.add_metric(both, zone.range.high)
                if zone.people_per_square_metre is not None:
                    density.add_metric(both, zone.people_per_square_metre)
        return number, people, low, high, densest, zones, zone_low, zone_high, density, seen

    def _forget_stale(self) -> None:
        oldest = time.time() - self._settings.camera_stale_seconds
        stale = [name for name, camera in self._latest.items() if camera.time < oldest]
        for name in stale:
            if not self._is_configured(name):
                del self._latest[name]


class Listener:
    """One event stream. A slow reader misses counts, never the newest of a camera; memory stays bounded."""

    def __init__(self, cameras: Cameras) -> None:
        self._cameras = cameras
        self._news: dict[tuple[str, str], str] = {}
        self._changed = asyncio.Event()
        self._ended = False

    def put(self, event: str, key: str, data: str) -> None:
        self._news.pop((event, key), None)  # the newest goes last
        self._news[event, key] = data
        if len(self._news) > 10_000:
            self._news.pop(next(iter(self._news)))
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def events(self) -> AsyncIterator[bytes]:
        """Server-sent events; a comment now and then keeps the connection from looking dead."""
        try:
            yield b"retry: 2000\n\n"
            while not self._ended:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await self._changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                self._changed.clear()
                news, self._news = self._news, {}
                yield "".join(f"event: {event}\ndata: {data}\n\n" for (event, _), data in news.items()).encode()
        finally:
            self._cameras.leave(self)
