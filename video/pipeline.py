"""Frames -> counts, in order, on disk: the story of `uepnet video`.

A file's every chosen frame is counted and none is lost; of a live source the newest frame is, and what could not
be seen or counted leaves a gap. Reading, counting and writing go on at the same time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from uepnet.model.count import Count
from uepnet.model.errors import ImageError, InferenceError, InputError
from uepnet.model.image import load_image
from uepnet.model.zones import Zone
from uepnet.service.backends import Backend, ModelName, count_fields, in_order
from uepnet.service.frames import Choice, Frame, Gap, Source, reason
from uepnet.service.live import timestamp
from uepnet.service.recording import Record, Sink

if TYPE_CHECKING:
    from uepnet.service.annotate import AnnotatedVideo


@dataclass(frozen=True, slots=True)
class Counted:
    frame: Frame
    count: Count
    model: ModelName
    image: NDArray[np.uint8] | None  # RGB, where it is drawn on


@dataclass
class Summary:
    """What a recording holds; fed with its records."""

    counted: int = 0
    fresh: int = 0  # of them counted now, not before a resumption
    gaps: int = 0
    dropped: int = 0
    people: float = 0.0
    peak: Record | None = None

    def add(self, record: Record) -> None:
        self.dropped += record.get("dropped", 0)
        if "gap" in record:
            self.gaps += 1
            return
        self.counted += 1
        self.people += record["count"]
        if self.peak is None or record["count"] > self.peak["count"]:
            self.peak = record

    @property
    def mean(self) -> float | None:
        return self.people / self.counted if self.counted else None


@dataclass(frozen=True)
class Job:
    """One source counted by one backend into one recording."""

    source: Source
    choice: Choice
    backend: Backend
    sink: Sink
    zones: Sequence[Zone] = ()
    camera: str | None = None
    annotated: "AnnotatedVideo | None" = None

    def run(self, summary: Summary, watch: Callable[[Record], None] = lambda record: None) -> None:
        """Count until the source ends. `summary` is up to date also when this is interrupted or fails."""
        items = self._live_items(summary) if self.source.live else self._file_items(summary)
        if self.source.live:
            results = in_order(items, self._count, self.backend.in_flight_live)
        else:
            results = in_order(items, self._count, self.backend.in_flight, ahead=self.backend.in_flight)
        try:
            with closing(results):
                for _, result in results:
                    record = self._record(result)
                    self.sink.write(record)
                    summary.add(record)
                    summary.fresh += "count" in record
                    if self.annotated and isinstance(result, Counted) and result.image is not None:
                        self.annotated.write(result.image, result.count, result.frame.timestamp)
                    watch(record)
        finally:
            self.source.stop()

    def _count(self, item: Frame | Gap) -> Counted | Gap:
        """A frame's count. A picture that cannot be read is a gap; so is what a live source's server fails at."""
        if isinstance(item, Gap):
            return item
        try:
            picture = item.picture()
            count, model = self.backend.count(picture, self.zones)
            image = None
            if self.annotated:
                image = load_image(picture) if isinstance(picture, bytes) else picture
            return Counted(item, count, model, image)
        except (ImageError, OSError) as error:
            return Gap(item.number, item.timestamp, f"the picture cannot be read: {reason(error)}", item.time)
        except InferenceError as error:
            if not self.source.live:
                raise
            return Gap(item.number, item.timestamp, f"the frame was not counted: {reason(error)}", item.time)

    def _record(self, result: Counted | Gap) -> Record:
        item = result.frame if isinstance(result, Counted) else result
        record: Record = {"frame": item.number, "timestamp": float(item.timestamp)}
        if item.time is not None:
            record["time"] = item.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.camera is not None:
            record["camera"] = self.camera
        if isinstance(result, Gap):
            return record | {"gap": result.reason}
        if self.source.live:
            record["dropped"] = result.frame.dropped
        return record | count_fields(result.count, result.model)

    def _file_items(self, summary: Summary) -> Iterator[Frame | Gap]:
        """The chosen frames after those that the recording already holds."""
        items = self.choice.of(self.source.frames())
        for record in self.sink.kept():
            self._check_kept(record, next(items, None))
            summary.add(record)
        yield from items

    def _check_kept(self, record: Record, item: Frame | Gap | None) -> None:
        """A recording goes on only as it began, or it would equal no unbroken one."""
        expected = None if item is None else (item.number, float(item.timestamp), self.camera)
        if (record["frame"], record["timestamp"], record.get("camera")) != expected:
            raise InputError(
                f"The recording does not fit: its frame {record['frame']} at {record['timestamp']:g} s is not what"
                " this source, camera and choice of frames give; begin anew with --overwrite."
            )
        self._check_model_and_zones(record)

    def _check_model_and_zones(self, record: Record) -> None:
        if "count" not in record:
            return
        if record["model"] != self.backend.model._asdict():
            written, now = " ".join(record["model"].values()), " ".join(self.backend.model)
            raise InputError(f"The recording was made with the model {written}, this is {now}.")
        if [zone["name"] for zone in record["zones"]] != [zone.name for zone in self.zones]:
            raise InputError("The recording was made with other zones.")

    def _live_items(self, summary: Summary) -> Iterator[Frame | Gap]:
        """A gap where a resumed recording was interrupted, then what comes."""
        next_number = 0
        for record in self.sink.kept():
            self._check_model_and_zones(record)
            summary.add(record)
            next_number = record["frame"] + ("count" in record)
        if next_number:
            now = datetime.now(UTC)
            yield Gap(next_number, timestamp(now), "the recording was interrupted", now)
        for item in self.source.frames():
            yield replace(item, number=next_number + item.number)
