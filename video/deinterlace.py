"""Interlaced frames -> whole pictures.

An interlaced frame holds two moments in alternate lines; what moved between them looks like a comb, and people who
walk are counted several times or not at all.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, cast

from uepnet.model.errors import InputError

if TYPE_CHECKING:
    import av

Mode = Literal["auto", "on", "off"]


def deinterlaced(frames: "Iterable[av.VideoFrame]", mode: Mode) -> "Iterator[av.VideoFrame]":
    """As many frames as come in, at the same times. `auto` changes only frames that are marked as interlaced.

    The filter needs the next frame to see what moves, so its output is one frame late; without interlaced frames
    it is not used at all.
    """
    filtering: _Filter | None = None
    source = iter(frames)
    while True:
        try:
            frame = next(source)
        except StopIteration:
            break
        except InputError:  # the source is cut off: what came before is still shown
            if filtering is not None:
                yield from filtering.last()
            raise
        if filtering is not None and not filtering.fits(frame):
            yield from filtering.last()
            filtering = None
        if filtering is None and (mode == "on" or (mode == "auto" and frame.interlaced_frame)):
            filtering = _Filter(frame, "interlaced" if mode == "auto" else "all")
        if filtering is None:
            yield frame
        else:
            yield from filtering.add(frame)
    if filtering is not None:
        yield from filtering.last()


class _Filter:
    """FFmpeg's bwdif for frames of one size and format."""

    def __init__(self, first: "av.VideoFrame", which: Literal["interlaced", "all"]) -> None:
        from av.filter import Graph

        self._shape = _shape(first)
        self._graph: Graph = Graph()
        self._source = self._graph.add_buffer(
            width=first.width, height=first.height, format=first.format, time_base=first.time_base
        )
        filtering = self._graph.add("bwdif", f"mode=send_frame:parity=auto:deint={which}")
        self._sink = self._graph.add("buffersink")
        self._source.link_to(filtering)
        filtering.link_to(self._sink)
        self._graph.configure()

    def fits(self, frame: "av.VideoFrame") -> bool:
        return _shape(frame) == self._shape

    def add(self, frame: "av.VideoFrame") -> "Iterator[av.VideoFrame]":
        self._source.push(frame)
        return self._ready()

    def last(self) -> "Iterator[av.VideoFrame]":
        self._source.push(None)
        return self._ready()

    def _ready(self) -> "Iterator[av.VideoFrame]":
        from av.error import BlockingIOError, EOFError

        while True:
            try:
                yield cast("av.VideoFrame", self._sink.pull())
            except (BlockingIOError, EOFError):
                return


def _shape(frame: "av.VideoFrame") -> tuple[int, int, str]:
    return frame.width, frame.height, frame.format.name
