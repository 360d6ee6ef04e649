"""All cameras of a camera file -> frames to the server: the story of `uepnet watch`.

One process, one thread per camera that takes the newest frame and posts it. A source that is down, at the start or
later, is opened again for ever, first after a second, then less often, as is a server that does not answer.
Meanwhile nothing is sent: the history has a gap, never a zero. At most one frame per camera waits in memory.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from urllib.parse import urlsplit

import httpx

from uepnet.client import requests
from uepnet.client.backends import without_loss
from uepnet.client.retry import Server
from uepnet.model.cameras import CameraEntry
from uepnet.model.errors import ImageError, InputError, OutputError, Overloaded, UepnetError, Unreachable
from uepnet.video.addresses import is_address, shown, without_file_scheme
from uepnet.video.frames import Choice, Folder, Frame, Gap, Source, VideoFile, reason
from uepnet.video.live import Live
from uepnet.video.sources import FILE_SUFFIXES

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 30.0
SNAPSHOT_SUFFIXES = (".jpg", ".jpeg", ".png")

log = logging.getLogger(__name__)


@dataclass
class Snapshots:
    """An address that gives one picture at a time."""

    address: str
    interval_seconds: float
    live: bool = field(default=True, init=False)
    expected: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._stop = Event()

    def frames(self) -> Iterator[Frame | Gap]:
        number, next_time = 0, time.monotonic()
        with httpx.Client(timeout=10.0) as http:
            while not self._stop.wait(max(0.0, next_time - time.monotonic())):
                next_time = max(next_time + self.interval_seconds, time.monotonic())
                try:
                    answer = http.get(self.address).raise_for_status()
                except httpx.HTTPStatusError as error:
                    raise InputError(f"status {error.response.status_code}") from None
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    raise InputError(str(error) or type(error).__name__) from None
                now = datetime.now(UTC)
                yield Frame(number, Fraction(now.timestamp()), partial(bytes, answer.content), now)
                number += 1

    def stop(self) -> None:
        self._stop.set()


@dataclass
class Rehearsal:
    """A video file or a folder of pictures as if it were a camera: in real time, again and again."""

    path: str
    fps: Fraction
    live: bool = field(default=True, init=False)
    expected: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._stop = Event()

    def frames(self) -> Iterator[Frame | Gap]:
        while not self._stop.is_set():
            began, shown_any = time.monotonic(), False
            for item in self._items():
                wait_seconds = began + float(item.timestamp) - time.monotonic()
                if self._stop.wait(max(0.0, wait_seconds)):
                    return
                if isinstance(item, Frame) and (wait_seconds > -1.0 or not shown_any):
                    shown_any = True
                    yield replace(item, time=datetime.now(UTC))
            if not shown_any:
                raise InputError("it holds no frame that can be read")
            self._stop.wait(1 / float(self.fps))

    def stop(self) -> None:
        self._stop.set()

    def _items(self) -> Iterator[Frame | Gap]:
        if Path(self.path).is_dir():
            return Folder(Path(self.path), self.fps).frames()
        return Choice(fps=self.fps).of(VideoFile(self.path).frames())


def open_source(entry: CameraEntry, folder: Path) -> Source:
    """What a source means: a number is a camera of this machine, an address a stream, all else a file or folder."""
    source, fps = without_file_scheme(entry.source or ""), Fraction(entry.fps).limit_denominator(1000)
    if source.isdecimal() or source.startswith("/dev/video"):
        return Live(f"/dev/video{source}" if source.isdecimal() else source, Choice(fps=fps), format="v4l2")
    if is_address(source):
        path = urlsplit(source).path.lower()
        if source.startswith("http") and path.endswith(SNAPSHOT_SUFFIXES):
            return Snapshots(source, float(1 / fps))
        if not path.endswith(FILE_SUFFIXES):
            return Live(source, Choice(fps=fps))
        return Rehearsal(source, fps)
    return Rehearsal(str(folder / source), fps)


class Post:
    """Sends frames to the server; says once when the server goes away, and once when it is back."""

    def __init__(self, url: str, timeout_seconds: float = 60.0) -> None:
        self._server = Server(url, None, timeout_seconds, 0.0)
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=256)
        self._http = httpx.Client(
            base_url=self._server.url, headers=self._server.headers, timeout=self._server.timeout, limits=limits
        )
        self._packed = self._server.url.host not in ("localhost", "127.0.0.1", "::1")
        self._away = False
        self._lock = Lock()

    def send(self, camera: str, frame: Frame) -> None:
        """Raises UepnetError where the frame was not counted."""
        picture = frame.picture()
        content = picture if isinstance(picture, bytes) else without_loss(picture, self._packed)
        call = requests.count(content, camera=camera)
        moment = (frame.time or datetime.now(UTC)).isoformat(timespec="milliseconds")
        call = replace(call, params={**call.params, "time": moment.replace("+00:00", "Z")})
        outcome: httpx.Response | httpx.TransportError
        try:
            outcome = self._http.send(call.request(self._http))
        except httpx.TransportError as error:
            outcome = error
        away = isinstance(outcome, httpx.TransportError) or outcome.status_code in (502, 503)
        with self._lock:
            if away != self._away:
                log.warning("%s %s", self._server.name, "does not answer; trying again" if away else "answers again")
            self._away = away
        self._server.answer(call, outcome)

    def close(self) -> None:
        self._http.close()


class WatchedCamera:
    """One camera, in a thread of its own."""

    def __init__(
        self, name: str, entry: CameraEntry, post: Post, folder: Path, first_retry_seconds: float = FIRST_RETRY_SECONDS
    ) -> None:
        self.name, self._entry, self._post, self._folder = name, entry, post, folder
        self._first_retry_seconds = first_retry_seconds
        self._stop = Event()
        self._source: Source | None = None
        self._state = ""
        self.sent = 0
        self._thread = self._started()

    def check(self) -> None:
        """Start the thread again if a fault of ours ended it."""
        if not self._thread.is_alive() and not self._stop.is_set():
            self._thread = self._started()

    def stop(self) -> None:
        self._stop.set()
        if self._source is not None:
            self._source.stop()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _started(self) -> Thread:
        thread = Thread(target=self._run, name=f"watch-{self.name}", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        wait_seconds = self._first_retry_seconds
        while not self._stop.is_set():
            sent = self.sent
            try:
                self._source = open_source(self._entry, self._folder)
                self._follow(self._source)
            except (InputError, OSError) as error:
                self._note("lost", f"the source cannot be read ({_plain(error, self._entry.source or '')})")
            finally:
                if self._source is not None:
                    self._source.stop()
            if self.sent > sent:
                wait_seconds = self._first_retry_seconds
            self._stop.wait(wait_seconds)
            wait_seconds = min(2 * wait_seconds, LAST_RETRY_SECONDS)

    def _follow(self, source: Source) -> None:
        pause_seconds = self._first_retry_seconds
        for item in source.frames():
            if self._stop.is_set():
                return
            if isinstance(item, Gap):
                self._note("lost", item.reason)
                continue
            try:
                self._post.send(self.name, item)
            except (Unreachable, Overloaded):
                # Said once for all cameras. Frames pass by meanwhile; the newest one is taken after the pause.
                self._stop.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, 10.0)
            except (ImageError, OutputError, OSError) as error:
                self._note("damaged", f"a picture cannot be read ({_plain(error, '')})")
            except UepnetError as error:
                self._note("refused", f"the server does not count it: {error}")
                self._stop.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LAST_RETRY_SECONDS)
            else:
                pause_seconds = self._first_retry_seconds
                self.sent += 1
                self._note("live", "frames are counted")

    def _note(self, state: str, text: str) -> None:
        """One line per change of state."""
        if state != self._state:
            log.log(logging.INFO if state == "live" else logging.WARNING, "%s: %s", self.name, text)
        self._state = state


def watch(cameras: dict[str, CameraEntry], server: str, folder: Path, stop: Event) -> None:
    """Run until `stop` is set."""
    if any(_decodes_video(entry, folder) for entry in cameras.values()):
        import av  # noqa: F401 - before the threads: they would import it at the same time, and break each other's import
    post = Post(server)
    with_source = {name: entry for name, entry in cameras.items() if entry.source}
    log.info("watching %d cameras for %s", len(with_source), shown(server))
    watches = [WatchedCamera(name, entry, post, folder) for name, entry in with_source.items()]
    try:
        while not stop.wait(1.0):
            for one in watches:
                one.check()
    finally:
        for one in watches:
            one.stop()
        until = time.monotonic() + 5.0
        for one in watches:
            one.join(max(0.0, until - time.monotonic()))
        post.close()


def _decodes_video(entry: CameraEntry, folder: Path) -> bool:
    """Whether the source needs the extra `video`: single pictures do not."""
    source = open_source(entry, folder)
    is_folder = isinstance(source, Rehearsal) and Path(source.path).is_dir()
    return not (is_folder or isinstance(source, Snapshots))


def _plain(error: Exception, address: str) -> str:
    """Without the address, which may hold a password and is in the camera file; a file's path is told."""
    text = reason(error)
    for secret in {address, shown(address)} if "://" in address else ():
        text = text.replace(secret, "it")
    return text
