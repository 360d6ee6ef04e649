"""Many replicas as one: their metrics side by side, and the newest count of each camera."""

from collections.abc import Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from uepnet.service.schemas import Camera


class Report(NamedTuple):
    """What one replica tells the one that was asked."""

    replica: str
    families: list[Metric]
    cameras: list[Camera]


def newer(reports: Sequence[Report], known: Sequence[Camera]) -> list[Camera]:
    """What the reports know better than we do: cameras that are new to us, or that were counted later."""
    newest = {camera.camera: camera for camera in known}
    for report in reports:
        for camera in report.cameras:
            if camera.camera not in newest or camera.time > newest[camera.camera].time:
                newest[camera.camera] = camera
    ours = {camera.camera: camera.time for camera in known}
    return [camera for camera in newest.values() if camera.time != ours.get(camera.camera)]


def metrics_text(reports: Sequence[Report], cameras: Sequence[Metric]) -> bytes:
    """All replicas' series with the label `replica`; what is known of cameras once, without it."""
    once = {family.name for family in cameras}
    merged: dict[str, Metric] = {}
    for report in reports:
        for family in report.families:
            if family.name not in once:
                target = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    target.samples.append(sample._replace(labels={**sample.labels, "replica": report.replica}))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families([*merged.values(), *cameras]))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        return self._families
