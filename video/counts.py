"""A video as a stream of counts, for Python: what `Counter().video(source)` yields."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Any, cast, get_args

from uepnet.model.count import Count
from uepnet.model.counted_image import FrameCount
from uepnet.model.errors import ImageError, InputError
from uepnet.model.zones import Zone
from uepnet.video.deinterlace import Mode
from uepnet.video.frames import Choice, Gap
from uepnet.video.sources import open_source


def count_frames(
    count: Callable[[Any, Sequence[Zone]], Count],
    source: str | Path | int,
    zones: Sequence[Zone] = (),
    *,
    every: int = 1,
    fps: float | None = None,
    start: float = 0.0,
    end: float | None = None,
    rate: float = 25.0,
    deinterlace: Mode = "auto",
    retry: bool = True,
) -> Iterator[FrameCount]:
    """The chosen frames, counted one after the other; raises InputError where the source was cut off."""
    if isinstance(source, bool) or not isinstance(source, str | Path | int):
        raise InputError(f"video() takes a path, an address or a camera's number, not {type(source).__name__}.")
    if deinterlace not in get_args(Mode):
        raise InputError(f"deinterlace is one of {', '.join(get_args(Mode))}, not {deinterlace!r}.")
    choice = _choice(every, fps, start, end)
    opened = open_source(str(source), choice, _number("rate", rate, above=0), deinterlace, retry)
    items = opened.frames() if opened.live else choice.of(opened.frames())
    return _counted(count, items, zones, opened.stop)


def _choice(every: int, fps: float | None, start: float, end: float | None) -> Choice:
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise InputError(f"every is a whole number from 1, not {every!r}.")
    if every > 1 and fps is not None:
        raise InputError("every and fps exclude each other: give one of them.")
    first = _number("start", start)
    last = None if end is None else _number("end", end)
    if last is not None and last <= first:
        raise InputError("end must be later than start.")
    return Choice(every, None if fps is None else _number("fps", fps, above=0), first, last)


def _number(name: str, value: object, above: int | None = None) -> Fraction:
    number = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    if not number or not isfinite(cast(float, value)) or cast(float, value) < 0 or value == above:
        limit = "0 or more" if above is None else f"above {above}"
        raise InputError(f"{name} must be a number {limit}, not {value!r}.")
    exact = Fraction(cast(float, value))
    return exact.limit_denominator(10_000) or exact  # 29.97 is meant as such; a tiny rate is not 0


def _counted(
    count: Callable[[Any, Sequence[Zone]], Count], items: Any, zones: Sequence[Zone], stop: Callable[[], None]
) -> Iterator[FrameCount]:
    try:
        with closing(items):
            for item in items:
                seconds = float(item.timestamp)
                if isinstance(item, Gap):
                    yield FrameCount(item.number, seconds, item.time, None, None, item.reason)
                    continue
                try:
                    result = count(item.picture(), zones)
                except ImageError as error:
                    yield FrameCount(item.number, seconds, item.time, None, None, str(error))
                    continue
                yield FrameCount(item.number, seconds, item.time, result.count, result)
    finally:
        stop()
