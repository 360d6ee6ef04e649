"""The latest count per camera and zone, for Prometheus, for a list, and as a stream of events."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from uepnet.service.metrics import Metrics
from uepnet.service.problems import Refused
from uepnet.service.schemas import Camera
from uepnet.service.settings import Settings

HEARTBEAT_SECONDS = 15.0


class Cameras(Collector):
    """Bounded: at most max_cameras, and those silent for camera_stale_seconds are forgotten."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._latest: dict[str, Camera] = {}
        self._listeners: set[Listener] = set()
        metrics.add(self)

    def check_room(self, name: str) -> None:
        """Refuse a new camera where there is no room; to be asked before its image is counted."""
        self._forget_stale()
        if name not in self._latest and len(self._latest) >= self._settings.max_cameras:
            self._metrics.reject("cameras")
            detail = f"{self._settings.max_cameras} cameras are known, and no more are allowed."
            raise Refused("too-many-cameras", detail, {"Retry-After": "60"})

    def note(self, camera: Camera) -> None:
        self.check_room(camera.camera)
        self._latest[camera.camera] = camera
        for listener in self._listeners:
            listener.put(camera)

    def latest(self) -> list[Camera]:
        self._forget_stale()
        return sorted(self._latest.values(), key=lambda camera: camera.camera)

    def listen(self) -> "Listener":
        """A new listener, which first hears the latest count of every camera."""
        if len(self._listeners) >= self._settings.max_event_streams:
            self._metrics.reject("streams")
            raise Refused("too-many-streams", "Too many listeners to events; try again later.")
        listener = Listener(self)
        for camera in self.latest():
            listener.put(camera)
        self._listeners.add(listener)
        self._metrics.event_streams.set(len(self._listeners))
        return listener

    def leave(self, listener: "Listener") -> None:
        self._listeners.discard(listener)
        self._metrics.event_streams.set(len(self._listeners))

    def end_streams(self) -> None:
        for listener in self._listeners:
            listener.end()

    def collect(self) -> Iterable[Metric]:
        """Read at each scrape: what is forgotten vanishes from Prometheus too."""
        cameras = self.latest()
        count = GaugeMetricFamily("uepnet_cameras", "Cameras remembered", value=len(cameras))
        people = GaugeMetricFamily("uepnet_camera_people", "Latest count of a camera", labels=["camera"])
        zones = GaugeMetricFamily("uepnet_zone_people", "Latest count of a zone", labels=["camera", "zone"])
        seen = GaugeMetricFamily(
            "uepnet_camera_last_seen_timestamp_seconds", "When a camera was counted last", labels=["camera"]
        )
        for camera in cameras:
            people.add_metric([camera.camera], camera.count)
            seen.add_metric([camera.camera], camera.time)
            for zone in camera.zones:
                zones.add_metric([camera.camera, zone.name], zone.count)
        return count, people, zones, seen

    def _forget_stale(self) -> None:
        oldest = time.time() - self._settings.camera_stale_seconds
        for name in [name for name, camera in self._latest.items() if camera.time < oldest]:
            del self._latest[name]


class Listener:
    """One event stream. A slow reader misses counts, never the newest of a camera; memory stays bounded."""

    def __init__(self, cameras: Cameras) -> None:
        self._cameras = cameras
        self._news: dict[str, Camera] = {}
        self._changed = asyncio.Event()
        self._ended = False

    def put(self, camera: Camera) -> None:
        self._news.pop(camera.camera, None)  # the newest goes last
        self._news[camera.camera] = camera
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
                for camera in news.values():
                    yield f"event: count\ndata: {camera.model_dump_json()}\n\n".encode()
        finally:
            self._cameras.leave(self)
