"""What the name of a source means: a camera's number, the address of a stream, a folder of frames or a video file."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from uepnet.video.addresses import is_address, without_file_scheme
from uepnet.video.deinterlace import Mode
from uepnet.video.frames import Choice, Folder, Source, VideoFile
from uepnet.video.live import Live

# An http:// address with such an end is a file; any other is a live stream.
FILE_SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".wmv", ".flv")


def is_live(source: str) -> bool:
    if _is_camera(source):
        return True
    source = without_file_scheme(source)
    return is_address(source) and not source.partition("?")[0].lower().endswith(FILE_SUFFIXES)


def open_source(
    name: str,
    choice: Choice,
    rate: Fraction = Fraction(25),
    deinterlace: Mode = "auto",
    retry: bool = True,
    notify: Callable[[str], None] = lambda text: None,
) -> Source:
    """`rate` is the frames per second of a folder; `retry` and `notify` are for live sources."""
    name = without_file_scheme(name)
    if _is_camera(name):
        return Live(f"/dev/video{name}" if name.isdecimal() else name, choice, "v4l2", deinterlace, retry, notify)
    if is_live(name):
        return Live(name, choice, None, deinterlace, retry, notify)
    if Path(name).is_dir():
        return Folder(Path(name), rate)
    return VideoFile(name, deinterlace)


def _is_camera(name: str) -> bool:
    return name.isdecimal() or name.startswith("/dev/video")
