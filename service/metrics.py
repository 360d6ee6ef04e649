"""Every Prometheus metric of the service, by name, in one place. The names are stable.

| name | labels | what |
|---|---|---|
| uepnet_requests_total | route, outcome | finished requests; the outcomes are those of `RequestOutcome` |
| uepnet_request_seconds | route | from the first byte of the request to the last of the answer |
| uepnet_decode_seconds | | bytes to pixels, per image |
| uepnet_queue_seconds | | waiting for the device, per image |
| uepnet_inference_seconds | | on the device, per image: the sum over its batches |
| uepnet_batch_seconds | | one batch on the device; the rate of its sum is the device's busy share |
| uepnet_batch_tiles | | tiles in a batch |
| uepnet_queue_tiles | | tiles that wait for the device now |
| uepnet_requests_in_flight | | admitted requests now |
| uepnet_requests_limit | | how many may be admitted at once (max_requests) |
| uepnet_buffered_bytes | | bytes of bodies and answers under way now |
| uepnet_rejected_total | reason | requests turned away; the reasons are those of `RejectReason` |
| uepnet_tiles_total | result | tiles by result: ok, failed, or dropped as nobody waited any more |
| uepnet_images_total | | images counted |
| uepnet_people_total | | people counted, summed over images |
| uepnet_camera_people | camera | the latest count of a camera's whole frame |
| uepnet_zone_people | camera, zone | the latest count of a zone |
| uepnet_camera_people_low, uepnet_camera_people_high | camera | the range of that count |
| uepnet_zone_people_low, uepnet_zone_people_high | camera, zone | the range of that count |
| uepnet_camera_people_per_square_metre | camera | density in the densest 10 m² that are seen |
| uepnet_zone_people_per_square_metre | camera, zone | mean density of a zone |
| uepnet_alert_open | camera, zone, kind | 1 while an alert is open |
| uepnet_camera_last_seen_timestamp_seconds | camera | when that count was made |
| uepnet_cameras | | cameras remembered now |
| uepnet_event_streams | | listeners to /v1/events now |
| uepnet_history_ok | | 1 when the history can be written, 0 while it cannot |
| uepnet_history_written_total | | counts written to the history |
| uepnet_history_pending | | rows that wait to be written |
| uepnet_history_dropped_total | | rows that were lost: the database was away for too long, or refused them |
| uepnet_history_errors_total | | failed attempts to write |
| uepnet_alert_deliveries_total | result | attempts to hand alerts to webhooks and MQTT: delivered, failed, dropped |
| uepnet_model_info | name, version, precision, device, engine, provider | 1 for the model that serves |
| uepnet_model_reloads_total | outcome | reloads: swapped, refused |
| uepnet_ready | | 1 when requests are taken |
| uepnet_device_fallback | | 1 when a device was asked for that could not run, and the CPU does |
| uepnet_device_memory_used_bytes, uepnet_device_memory_total_bytes | | where the device says |

Beside them the process_* and python_* metrics of prometheus-client. Cardinality is bounded: routes are
templates, cameras are bounded by max_cameras, the zones of each by the domain (64).
"""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from uepnet.service.shared_answer import SharedAnswer

RequestOutcome = Literal[
    "ok",
    "invalid",  # the request was wrong: 4xx
    "rejected",  # turned away to protect the service: 408, 429, 503
    "expired",  # its deadline passed: 504
    "cancelled",  # the client went away
    "failed",  # our own fault: 500
]
RejectReason = Literal[
    "full",  # max_requests
    "memory",  # max_buffered_bytes
    "not_ready",
    "draining",
    "slow",  # receive_seconds
    "too_large",  # max_body_bytes
    "too_many_pixels",
    "cameras",  # max_cameras
    "streams",  # max_event_streams
    "unauthorised",
    "connections",  # max_connections
    "forged",  # without keys: a Host header or an Origin that is not allowed
]

# From a GPU's few milliseconds to a large image on a busy CPU.
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10)
STAGE_SECONDS = (0.0005, 0.001, *SECONDS)


class Metrics:
    """One registry an app, so that several apps in a process (tests) do not add up."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a `_created` series a counter helps nobody
        self.registry = registry = CollectorRegistry()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="uepnet-metrics")
        self._text = SharedAnswer(self._make_text)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"uepnet_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"uepnet_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"uepnet_{name}", text, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests", "Finished requests", "route", "outcome")
        self.request_seconds = histogram("request_seconds", "Request time", SECONDS, "route")
        self.decode_seconds = histogram("decode_seconds", "Decoding time of an image", STAGE_SECONDS)
        self.queue_seconds = histogram("queue_seconds", "Time an image waits for the device", STAGE_SECONDS)
        self.inference_seconds = histogram("inference_seconds", "Device time of an image", STAGE_SECONDS)
        self.batch_seconds = histogram("batch_seconds", "Time of a batch on the device", STAGE_SECONDS)
        self.batch_tiles = histogram("batch_tiles", "Tiles in a batch", (1, 2, 4, 8, 16, 32))
        self.queue_tiles = gauge("queue_tiles", "Tiles that wait for the device")
        self.in_flight = gauge("requests_in_flight", "Admitted requests")
        self.requests_limit = gauge("requests_limit", "Requests that may be admitted at once")
        self.buffered_bytes = gauge("buffered_bytes", "Bytes of bodies and answers under way")
        self.rejected = counter("rejected", "Requests turned away", "reason")
        self.tiles = counter("tiles", "Tiles by result", "result")
        self.images = counter("images", "Images counted")
        self.people = counter("people", "People counted, summed over images")
        self.event_streams = gauge("event_streams", "Listeners to /v1/events")
        self.history_ok = gauge("history_ok", "1 when the history can be written")
        self.history_written = counter("history_written", "Counts written to the history")
        self.history_pending = gauge("history_pending", "Rows that wait to be written to the history")
        self.history_dropped = counter("history_dropped", "Rows lost to the history")
        self.history_errors = counter("history_errors", "Failed attempts to write the history")
        self.deliveries = counter("alert_deliveries", "Attempts to hand over alerts by result", "result")
        self.model = Info("uepnet_model", "The model that serves", registry=registry)
        self.reloads = counter("model_reloads", "Model reloads by outcome", "outcome")
        self.ready = gauge("ready", "1 when requests are taken")
        self.fallback = gauge("device_fallback", "1 when the CPU runs in place of the device asked for")

        # A series that exists from the start can be alerted on; one that appears with the first fault cannot.
        for reason in get_args(RejectReason):
            self.rejected.labels(reason)
        for result in ("ok", "failed", "dropped"):
            self.tiles.labels(result)
        for result in ("delivered", "failed", "dropped"):
            self.deliveries.labels(result)
        for outcome in ("swapped", "refused"):
            self.reloads.labels(outcome)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

    def reject(self, reason: RejectReason) -> None:
        self.rejected.labels(reason).inc()

    def watch_device_memory(self, device_memory: Callable[[], tuple[int, int] | None]) -> None:
        """Add the device's memory, asked anew at each scrape; only where it is known."""
        if device_memory() is None:
            return

        def read(index: int) -> float:
            memory = device_memory()
            return math.nan if memory is None else memory[index]

        for index, kind in enumerate(("used", "total")):
            name = f"uepnet_device_memory_{kind}_bytes"
            gauge = Gauge(name, f"Device memory, {kind}", registry=self.registry)
            gauge.set_function(partial(read, index))

    def add(self, collector: Collector) -> None:
        self.registry.register(collector)

    async def text(self) -> bytes:
        """The metrics in Prometheus' format. With many zones this is megabytes: concurrent requests share one text."""
        return await self._text.get()

    def close(self) -> None:
        self._writer.shutdown(wait=False)

    async def _make_text(self) -> bytes:
        """Collected on the event loop, which owns what cameras show; written in a thread that does nothing else."""
        collected = CollectorRegistry(auto_describe=False)
        collected.register(_Collected(list(self.registry.collect())))
        return await asyncio.get_running_loop().run_in_executor(self._writer, generate_latest, collected)


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
