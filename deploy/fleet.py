"""Several replicas seen as one: all their metrics, and the newest count of each camera."""

from collections.abc import Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from uepnet.service.schemas import Camera


class ReplicaReport(NamedTuple):
    """What a replica sends to the replica that answers a request."""

    replica: str
    families: list[Metric]
    cameras: list[Camera]


def newer(reports: Sequence[ReplicaReport], known: Sequence[Camera]) -> list[Camera]:
    """Cameras whose reported count is newer than the known one, or that are not known yet."""
    newest = {camera.camera: camera for camera in known}
    for report in reports:
        for camera in report.cameras:
            if camera.camera not in newest or camera.time > newest[camera.camera].time:
                newest[camera.camera] = camera
    ours = {camera.camera: camera.time for camera in known}
    return [camera for camera in newest.values() if camera.time != ours.get(camera.camera)]


def metrics_text(reports: Sequence[ReplicaReport], cameras: Sequence[Metric]) -> bytes:
    """The metrics of all replicas with the label `replica`; those of cameras once, without it."""
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
