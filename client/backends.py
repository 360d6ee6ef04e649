"""One interface for counting in this process or on a server; several images at once, results in order."""

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from ipaddress import ip_address
from queue import SimpleQueue
from threading import Event, Lock, Semaphore
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from uepnet.client.client import Client, CountAnswer
from uepnet.client.tiff import tiff
from uepnet.model import counted_image
from uepnet.model.artifact import Artifact
from uepnet.model.count import Count, Range, RunTiles, ScaleUse, count_image
from uepnet.model.errors import InferenceError
from uepnet.model.image import encode_png, load_image
from uepnet.model.zones import Zone, ZoneCount
from uepnet.video.frames import Picture

T = TypeVar("T")
R = TypeVar("R")

LARGEST_UNPACKED_BYTES = 24 * 2**20  # a 4K frame; larger ones could exceed the server's body limit


class ModelName(NamedTuple):
    name: str
    version: str


class Backend(Protocol):
    in_flight: int  # number of images to send at the same time
    in_flight_live: int  # of a live source, where a frame that waits for others grows old
    model: ModelName  # at the start; a server may change to another

    def count(self, picture: Picture, zones: Sequence[Zone]) -> tuple[Count, ModelName]: ...

    def close(self) -> None: ...


class InProcess:
    """The model in this process. Two in flight: one image is decoded while the other is on the device."""

    in_flight = 2
    in_flight_live = 1

    def __init__(self, artifact: Artifact, run_tiles: RunTiles) -> None:
        self._artifact, self._run_tiles = artifact, run_tiles
        self._device = Lock()
        self.model = ModelName(artifact.name, artifact.version)

    def count(self, picture: Picture, zones: Sequence[Zone]) -> tuple[Count, ModelName]:
        image = load_image(picture) if isinstance(picture, bytes) else picture
        with self._device:
            return count_image(image, self._artifact, self._run_tiles, zones), self.model

    def close(self) -> None:
        pass


class OverServer:
    """Counts on a server; threads may share it. Count maps are requested only for drawing."""

    def __init__(
        self, client: Client, in_flight: int | None = None, camera: str | None = None, with_map: bool = False
    ) -> None:
        self._client, self._camera, self._with_map = client, camera, with_map
        self.in_flight = in_flight or 8
        self.in_flight_live = in_flight or 2  # one is counted while the next is on its way
        self._packed = not _is_loopback(client.host)
        model = client.model()
        self.model = ModelName(model.name, model.version)

    def count(self, picture: Picture, zones: Sequence[Zone]) -> tuple[Count, ModelName]:
        content = picture if isinstance(picture, bytes) else without_loss(picture, self._packed)
        answer = self._client.count(content, zones, camera=self._camera, with_map=self._with_map)
        return as_count(answer, self._with_map), ModelName(answer.model.name, answer.model.version)

    def close(self) -> None:
        self._client.close()


def without_loss(image: NDArray[np.uint8], packed: bool) -> bytes:
    """The pixels without loss, as PNG, or within one machine as uncompressed TIFF, which costs less time."""
    if not packed and image.nbytes <= LARGEST_UNPACKED_BYTES:
        return tiff(image)
    return encode_png(image)


def as_count(answer: CountAnswer, with_map: bool) -> Count:
    """A server's answer as a `Count`; where it has no map, the count map has no cells."""
    if with_map and answer.map is None:
        raise InferenceError("The server sent no count map: it is older than this client.")
    bounds = answer.range
    return Count(
        count=answer.count,
        range=None if bounds is None else Range(bounds.low, bounds.high, bounds.level),
        count_map=np.zeros((0, 0), np.float32) if answer.map is None else answer.map.array(),
        width=answer.width,
        height=answer.height,
        zones=tuple(ZoneCount(zone.name, zone.count) for zone in answer.zones),
        saturated=answer.saturated,
        scales=tuple(ScaleUse(use.scale, use.share) for use in answer.scales),
        warnings=tuple(answer.warnings),
        familiarity=answer.familiarity,
        unfamiliar=answer.unfamiliar,
        cell=8 if answer.map is None else answer.map.cell,
    )


def count_fields(count: Count, model: ModelName) -> dict[str, Any]:
    """A count as it is written in every JSON."""
    return counted_image.count_fields(count, model._asdict())


def in_order(
    items: Iterable[T], work: Callable[[T], R], in_flight: int, ahead: int = 0
) -> Generator[tuple[T, R], None, None]:
    """`work` on the items, `in_flight` at once; each item with its result, in the order of the items.

    An item is taken only when there is room for it (`ahead` more may wait): of a live source the newest is taken,
    and memory does not grow with the number of items. A thread of its own takes the items, so that a source that
    is silent does not hold back finished results.
    """
    room = Semaphore(in_flight + ahead)
    handed: SimpleQueue[tuple[T, Future[R]] | None] = SimpleQueue()
    stop = Event()
    workers = ThreadPoolExecutor(in_flight, thread_name_prefix="count")
    drawer = ThreadPoolExecutor(1, thread_name_prefix="draw")

    def draw() -> None:
        iterator = iter(items)
        while room.acquire() and not stop.is_set():
            try:
                item = next(iterator)
            except StopIteration:
                return
            handed.put((item, workers.submit(work, item)))

    drawn = drawer.submit(draw)
    drawn.add_done_callback(lambda _: handed.put(None))
    try:
        while (entry := handed.get()) is not None:
            item, future = entry
            yield item, future.result()
            room.release()
        drawn.result()  # raises what drawing the items raised
    finally:
        stop.set()
        room.release()
        drawer.shutdown(wait=False)
        workers.shutdown(wait=False, cancel_futures=True)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
