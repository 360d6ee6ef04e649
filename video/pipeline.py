"""Frames -> counts, in order, on disk: the story of `uepnet video`.

Of a file every chosen frame is counted; of a live source always the newest one, and what could not be seen or
counted leaves a gap. Reading, counting and writing go on at the same time.
"""

from collections import Counter as TextCounter
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from uepnet.client.backends import Backend, ModelName, count_fields, in_order
from uepnet.model.count import Count
from uepnet.model.errors import ImageError, InferenceError, InputError
from uepnet.model.image import load_image
from uepnet.model.zones import Zone
from uepnet.video.frames import Choice, Frame, Gap, Source, reason
from uepnet.video.live import timestamp
from uepnet.video.recording import Record, Sink, moment_text
from uepnet.video.smoothed import Smoother, best_count

if TYPE_CHECKING:
    from uepnet.video.annotate import AnnotatedVideo

SILENCE_SECONDS = 5.0  # live: this long without a count is a gap, unless frames are always that far apart


@dataclass(frozen=True, slots=True)
class Counted:
    frame: Frame
    count: Count
    model: ModelName
    image: NDArray[np.uint8] | None  # RGB, where it is drawn on


@dataclass
class Summary:
    """What a recording holds; its records are passed to `add`."""

    counted: int = 0
    fresh: int = 0  # counted in this run, not before a resumption
    gaps: int = 0
    dropped: int = 0
    people: float = 0.0
    peak: Record | None = None
    warned: int = 0  # counted frames with a warning
    warnings: TextCounter[str] = field(default_factory=TextCounter)  # sentence -> frames

    def add(self, record: Record) -> None:
        self.dropped += record.get("dropped", 0)
        count = best_count(record)
        if count is None:
            self.gaps += 1
            return
        self.counted += 1
        self.people += record["count"]
        self.warned += bool(record.get("warnings"))
        self.warnings.update(record.get("warnings", ()))
        if self.peak is None or count > (best_count(self.peak) or 0.0):
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
    smoother: Smoother | None = None
    began: datetime | None = None  # of a file: the time on the clock of its first frame

    def run(
        self,
        summary: Summary,
        watch: Callable[[Record], None] = lambda record: None,
        resumed: Callable[[Record], None] = lambda record: None,
    ) -> None:
        """Count until the source ends. `summary` is up to date also when this is interrupted or fails.

        `watch` gets the records as they are written, `resumed` those that the recording holds already.
        """
        if self.source.live:
            items, ahead, in_flight = self._live_items(summary, resumed), 0, self.backend.in_flight_live
        else:
            items, ahead, in_flight = self._file_items(summary, resumed), self.backend.in_flight, self.backend.in_flight
        silence = Silence(self.choice.fps)
        try:
            with closing(in_order(items, self._count, in_flight, ahead=ahead)) as results:
                for _, result in results:
                    for told in silence.before(result) if self.source.live else [result]:
                        self._keep(told, summary, watch)
        finally:
            self.source.stop()

    def _keep(self, result: Counted | Gap, summary: Summary, watch: Callable[[Record], None]) -> None:
        record = self._record(result)
        if self.smoother is not None:
            record = self.smoother.add(record)
        self.sink.write(record)
        summary.add(record)
        summary.fresh += "count" in record
        if self.annotated and isinstance(result, Counted) and result.image is not None:
            self.annotated.write(result.image, result.count, result.frame.timestamp, self._label(record))
        watch(record)

    def _label(self, record: Record) -> str:
        """What stands on an annotated frame: camera and time."""
        return "  ".join(filter(None, (self.camera, moment_text(record))))

    def _count(self, item: Frame | Gap) -> Counted | Gap:
        """The count of a frame. A picture that cannot be read is a gap; live, so is a frame that was not counted."""
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
        time = self._time(item)
        if time is not None:
            record["time"] = time
        if self.camera is not None:
            record["camera"] = self.camera
        if isinstance(result, Gap):
            return record | {"gap": result.reason}
        if self.source.live:
            record["dropped"] = result.frame.dropped
        return record | count_fields(result.count, result.model)

    def _time(self, item: Frame | Gap) -> str | None:
        """The time on the clock, in UTC, where it is known."""
        time = item.time
        if time is None and self.began is not None:
            time = self.began + timedelta(seconds=float(item.timestamp))
        if time is None:
            return None
        return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _file_items(self, summary: Summary, resumed: Callable[[Record], None]) -> Iterator[Frame | Gap]:
        """The chosen frames after those that the recording already holds."""
        items = self.choice.of(self.source.frames())
        for record in self.sink.kept():
            self._check_kept(record, next(items, None))
            summary.add(record)
            resumed(record)
        yield from items

    def _check_kept(self, record: Record, item: Frame | Gap | None) -> None:
        """A recording is continued only with the same source and options, as if it had not been interrupted."""
        expected = None if item is None else (item.number, float(item.timestamp), self.camera, self._time(item))
        if (record["frame"], record["timestamp"], record.get("camera"), record.get("time")) != expected:
            raise InputError(
                f"The recording does not fit: its frame {record['frame']} at {record['timestamp']:g} s is not what"
                " this source, camera and choice of frames give; start again with --overwrite."
            )
        self._check_options(record)

    def _check_options(self, record: Record) -> None:
        if "count" not in record:
            return
        if not record.get("model"):
            raise InputError("The recording does not name the model that counted: start again with --overwrite.")
        if record["model"] != self.backend.model._asdict():
            written, now = " ".join(record["model"].values()), " ".join(self.backend.model)
            raise InputError(f"The recording was made with the model {written}, this is {now}.")
        if [zone["name"] for zone in record.get("zones", [])] != [zone.name for zone in self.zones]:
            raise InputError("The recording was made with other zones.")
        if self.smoother is None and "smoothed" in record:
            raise InputError("The recording was made with --smooth.")
        if self.smoother is not None:
            self.smoother.check(record)

    def _live_items(self, summary: Summary, resumed: Callable[[Record], None]) -> Iterator[Frame | Gap]:
        """A gap where a resumed recording was interrupted, then what comes."""
        next_number = 0
        for record in self.sink.kept():
            self._check_options(record)
            summary.add(record)
            resumed(record)
            next_number = record["frame"] + ("count" in record)
        if next_number:
            now = datetime.now(UTC)
            yield Gap(next_number, timestamp(now), "the recording was interrupted", now)
        for item in self.source.frames():
            yield replace(item, number=next_number + item.number)


class Silence:
    """Makes gaps of the time in which a live source was not counted, and one of many gaps in a row."""

    def __init__(self, fps: Fraction | None) -> None:
        self._slot = 0.0 if fps is None else float(1 / fps)
        self._spacings: deque[float] = deque(maxlen=9)
        self._last: Frame | None = None
        self._in_gap = False

    def before(self, result: Counted | Gap) -> Iterator[Counted | Gap]:
        """The result, after a gap where nothing was counted for much longer than usual."""
        if isinstance(result, Gap):
            if not self._in_gap:
                yield result
            self._in_gap, self._last = True, None
            return
        frame, last = result.frame, self._last
        self._in_gap, self._last = False, frame
        if last is not None:
            spacing = float(frame.timestamp - last.timestamp)
            usual = max(median(self._spacings or [spacing]), self._slot)
            self._spacings.append(spacing)
            if spacing > max(SILENCE_SECONDS, 3 * usual):
                text = f"no frame was counted for {spacing:.0f} s"
                moment = last.timestamp + Fraction(usual)
                time = None if last.time is None else last.time + timedelta(seconds=usual)
                yield Gap(frame.number, moment, text, time)
        yield result
