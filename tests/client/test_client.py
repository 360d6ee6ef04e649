"""The client against real servers; every test of an answer runs with both clients."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.servers import HeldRuntime, Process, Running, encoded, eventually, grey, running
from support.service_fixtures import CALIBRATION
from support.toy import toy_model

from uepnet import AsyncClient, Client, Counter, UepnetError
from uepnet.model.decode import density_map
from uepnet.model.errors import (
    Cancelled,
    ImageError,
    ImageTooLarge,
    InferenceError,
    InputError,
    Overloaded,
    Unreachable,
    ZoneError,
)
from uepnet.model.render import overlay
from uepnet.model.zones import Zone
from uepnet.service.settings import Settings

LEFT = Zone(name="left", units="fractions", polygon=((0, 0), (0.5, 0), (0.5, 1), (0, 1)))
NOWHERE = Zone(name="nowhere", polygon=((900, 900), (950, 900), (950, 950)))


class Awaited:
    """An AsyncClient that is called like a Client."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(*arguments, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *arguments, **options: self._runner.run(method(*arguments, **options))

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()


Connect = Callable[..., Any]


@pytest.fixture(params=[Client, Awaited], ids=["blocking", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    opened: list[Any] = []

    def start(*arguments: Any, **options: Any) -> Any:
        opened.append(request.param(*arguments, **options))
        return opened[-1]

    yield start
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Connect, service: Running) -> Any:
    return connect(service.url)


@pytest.fixture
def image() -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(7).integers(0, 256, (120, 200, 3), np.uint8)


def test_counts_over_http_are_those_in_process(client: Any, model_dir: Path, image: Any, tmp_path: Path) -> None:
    here = Counter(model_dir, device="cpu").count(image, [LEFT])
    path = tmp_path / "crowd.png"
    path.write_bytes(encoded(image))
    for source in (image, path, str(path), path.read_bytes()):
        there = client.count(source, [LEFT], with_map=True)
        assert there.count == here.count
        assert (there.range.low, there.range.high) == (here.range.low, here.range.high)
        assert [(zone.name, zone.count) for zone in there.zones] == [(z.name, z.count) for z in here.zones]
        assert (there.width, there.height, there.saturated) == (here.width, here.height, here.saturated)
        assert [(use.scale, use.share) for use in there.scales] == [(use.scale, use.share) for use in here.scales]
        assert tuple(there.warnings) == here.warnings
        assert np.array_equal(there.map.array(), here.count_map)
    assert (there.model.name, there.model.version) == ("toy", "1")


def test_maps_and_pictures_come_as_arrays(client: Any, model_dir: Path, image: Any) -> None:
    here = Counter(model_dir, device="cpu").count(image, [LEFT])
    assert np.array_equal(client.count_map(image), here.count_map)
    assert np.array_equal(client.density_map(image), density_map(here.count_map, 200, 120, here.cell))
    assert np.array_equal(client.overlay(image, [LEFT]), overlay(image, here, [LEFT]))
    assert client.heat_map(image).shape == image.shape


@pytest.fixture(scope="module")
def expecting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated model that decodes by expectation, and by argmax where one asks for it."""
    return toy_model(tmp_path_factory.mktemp("models") / "toy", decoding="expectation", calibration=CALIBRATION)


@pytest.fixture(scope="module")
def expecting_server(expecting: Path) -> Iterator[Running]:
    with running(Settings(port=0, model=expecting, history="off")) as server:
        yield server


@pytest.mark.parametrize("decoding", [None, "argmax", "expectation"])
def test_a_decoding_gives_the_same_over_http_and_in_process(
    connect: Connect, expecting: Path, expecting_server: Running, image: Any, decoding: Any
) -> None:
    client = connect(expecting_server.url)
    here = Counter(expecting, device="cpu").count(image, [LEFT], decoding=decoding)
    there = client.count(image, [LEFT], with_map=True, decoding=decoding)
    assert (here.range is None) == (there.range is None) == (decoding == "argmax")
    assert there.count == here.count
    assert [zone.count for zone in there.zones] == [zone.count for zone in here.zones]
    assert np.array_equal(there.map.array(), here.count_map)
    (entry,) = client.count_batch([image], [LEFT], decoding=decoding)
    assert (entry.count, entry.range is None) == (here.count, here.range is None)
    assert np.array_equal(client.count_map(image, decoding=decoding), here.count_map)
    density = density_map(here.count_map, 200, 120, here.cell)
    assert np.array_equal(client.density_map(image, decoding=decoding), density)
    assert np.array_equal(client.overlay(image, [LEFT], decoding=decoding), overlay(image, here, [LEFT]))


def test_two_decodings_differ_in_count_and_heat_map(connect: Connect, expecting_server: Running, image: Any) -> None:
    client = connect(expecting_server.url)
    assert client.count(image).count != client.count(image, decoding="argmax").count
    assert not np.array_equal(client.heat_map(image), client.heat_map(image, decoding="argmax"))


def test_the_default_decoding_is_set_alike_in_process_and_on_the_server(
    connect: Connect, serve: Callable[..., Running], expecting: Path, image: Any
) -> None:
    client = connect(serve(model=expecting, decoding="argmax").url)
    counter = Counter(expecting, device="cpu", decoding="argmax")
    for decoding in (None, "expectation"):
        here, there = (one.count(image, decoding=decoding) for one in (counter, client))
        assert (here.count, here.range is None) == (there.count, there.range is None)
    assert client.count(image).range is None and client.count(image, decoding="expectation").range is not None
    assert client.model().artifact["decoding"] == counter.artifact.decoding == "argmax"


def test_a_decoding_that_the_model_lacks_is_the_same_error_here_and_there(
    client: Any, model_dir: Path, image: Any
) -> None:
    counter = Counter(model_dir, device="cpu")
    told = []
    for call in (client.count, counter.count):
        with pytest.raises(InputError) as caught:
            call(image, decoding="expectation")
        told.append(str(caught.value))
    assert told == ["This model decodes by argmax, not by expectation."] * 2
    with pytest.raises(InputError, match="not by expectation"):  # of the call, not of each image
        client.count_batch([image], decoding="expectation")
    with pytest.raises(InputError, match="not by expectation"):
        counter.count_many([image], decoding="expectation", errors="return")


def test_a_bad_image_in_a_batch_spoils_only_itself(client: Any, image: Any) -> None:
    first, second, third = client.count_batch([image, b"no image", encoded(grey(64, 64))], [LEFT])
    assert first.count == client.count(image).count
    assert isinstance(second, ImageError)
    assert third.zones[0].count == pytest.approx(third.count / 2)


def test_a_missing_file_in_a_batch_spoils_only_itself(client: Any, image: Any) -> None:
    first, second, third = client.count_batch([Path("nowhere.jpg"), image, 12])
    assert isinstance(first, ImageError) and "nowhere.jpg cannot be read" in str(first)
    assert second.count == client.count(image).count
    assert isinstance(third, ImageError) and "not int" in str(third)
    assert all(isinstance(answer, ImageError) for answer in client.count_batch(["a.jpg", "b.jpg"]))


@pytest.mark.parametrize("images", ["photo.jpg", b"bytes", None])
def test_one_image_is_not_taken_for_a_batch(client: Any, images: Any) -> None:
    with pytest.raises(UepnetError, match=r"^count_batch\(\) takes a list"):
        client.count_batch(images)


def test_a_batch_may_be_an_iterator(client: Any, image: Any) -> None:
    assert len(client.count_batch(iter([image, image]))) == 2


def test_what_is_no_list_of_zones_is_one_sentence_here_too(client: Any, image: Any) -> None:
    with pytest.raises(UepnetError, match=r"^Zones are a list"):
        client.count(image, "zones.json")
    with pytest.raises(UepnetError, match=r"^Zones are a list"):
        client.count_batch([image], [{"name": "a"}])


def test_the_model_that_serves_is_told(client: Any) -> None:
    model = client.model()
    assert (model.name, model.artifact["decoding"]) == ("toy", "argmax")


def test_a_camera_shows_on_the_server(connect: Connect, serve: Callable[..., Running], image: Any) -> None:
    server = serve()
    answer = connect(server.url).count(image, camera="gate")
    (camera,) = server.http.get("/v1/cameras").json()["cameras"]
    assert (camera["camera"], camera["count"]) == ("gate", answer.count)


@pytest.mark.parametrize(
    ("source", "zones", "error", "words"),
    [
        (b"no image", (), ImageError, "not a"),
        (Path("nowhere.jpg"), (), ImageError, "nowhere.jpg cannot be read"),
        (np.zeros((4, 4), np.uint8), (), ImageError, "must be uint8"),
        (grey(64, 64), (NOWHERE,), ZoneError, "outside"),
    ],
)
def test_what_is_wrong_is_said_with_the_error_of_the_process(
    client: Any, source: Any, zones: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        client.count(source, zones)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_address_that_is_no_text_is_one_sentence(kind: Any) -> None:
    with pytest.raises(UepnetError, match=r"^A server's address is a text such as .*, not int\."):
        kind(8000)


def test_limits_of_the_server_are_told(connect: Connect, serve: Callable[..., Running]) -> None:
    client = connect(serve(max_pixels=10_000, max_body_bytes=20_000).url)
    with pytest.raises(ImageTooLarge, match="200 x 100"):
        client.count(grey(200, 100))
    noise = np.random.default_rng(1).integers(0, 256, (90, 90, 3), np.uint8)
    with pytest.raises(ImageTooLarge, match="20000 bytes"):
        client.count(noise)


def test_a_key_is_sent_from_the_argument_or_the_environment(
    connect: Connect, serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(api_keys="open-sesame").url
    with pytest.raises(InputError, match="UEPNET_API_KEY"):
        connect(url).model()
    assert connect(url, api_key="open-sesame").model().name == "toy"
    monkeypatch.setenv("UEPNET_API_KEY", "open-sesame")
    assert connect(url).model().name == "toy"


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "localhost:port"])
def test_an_address_that_is_none_is_refused(connect: Connect, url: str) -> None:
    with pytest.raises(InputError, match="http://localhost:8000"):
        connect(url)


def test_an_address_that_never_answered_is_not_waited_for(connect: Connect) -> None:
    with pytest.raises(Unreachable, match=r"No service answers at http://127.0.0.1:1 ") as caught:
        connect("http://someone:secret@127.0.0.1:1", patience_seconds=3600).model()  # waiting would be a time-out
    assert "secret" not in str(caught.value)


def test_a_full_server_is_asked_again_until_there_is_room(
    connect: Connect, serve: Callable[..., Running], held: HeldRuntime, image: Any
) -> None:
    server = serve(held, max_requests=1)
    held.go.clear()
    first = threading.Thread(target=server.count, args=(encoded(image),))
    first.start()
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 1)
    with pytest.raises(Overloaded):
        connect(server.url, patience_seconds=0).count(image)
    threading.Timer(0.5, held.go.set).start()
    assert connect(server.url).count(image).count > 0
    first.join()


def test_closing_ends_the_waiting_of_other_threads(serve: Callable[..., Running], held: HeldRuntime) -> None:
    server = serve(held, max_requests=1)
    held.go.clear()
    first = threading.Thread(target=server.count, args=(encoded(grey(64, 64)),))
    first.start()
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 1)
    client = Client(server.url)
    threading.Timer(0.3, client.close).start()
    with pytest.raises(Cancelled):
        client.count(grey(64, 64))
    held.go.set()
    first.join()


def test_a_server_that_comes_back_is_waited_for(connect: Connect, process: Callable[..., Process], image: Any) -> None:
    server = process()
    client = connect(server.url)
    expected = client.count(image).count
    server.kill()
    with pytest.raises(Unreachable):
        connect(server.url).model()
    threading.Timer(1, process, kwargs={"port": server.port, "ready": False}).start()
    assert client.count(image).count == expected


def test_patience_has_an_end(connect: Connect, scripted: "Script") -> None:
    client = connect(scripted.url, patience_seconds=0.5)
    scripted.answers += [(200, {}, b"")]
    with pytest.raises(InferenceError):
        client.model()  # has answered once: from now on it is waited for
    scripted.stop()
    began = time.monotonic()
    with pytest.raises(Unreachable):
        client.model()
    assert time.monotonic() - began > 0.4


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_honoured(connect: Connect, scripted: "Script", form: str) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    scripted.answers += [(429, {"Retry-After": "1" if form == "seconds" else date}, b""), (200, {}, b"{}")]
    began = time.monotonic()
    with pytest.raises(InferenceError, match="ModelAnswer"):
        connect(scripted.url).model()
    assert time.monotonic() - began > 0.9
    assert scripted.requests == 2


def test_a_server_that_asks_for_more_than_the_patience_is_not_waited_for(connect: Connect, scripted: "Script") -> None:
    scripted.answers += [(503, {"Retry-After": "3600"}, b"")]
    with pytest.raises(InferenceError, match="answered 503"):
        connect(scripted.url, patience_seconds=5).model()
    assert scripted.requests == 1


def test_another_server_s_page_is_no_answer(connect: Connect, scripted: "Script") -> None:
    scripted.answers += [(404, {"Content-Type": "text/html"}, b"<h1>Not here</h1>")]
    with pytest.raises(InferenceError, match=r"http://127.0.0.1:\d+/ answered 404"):
        connect(scripted.url).model()


class Script:
    """A real HTTP server that gives the answers it was told to."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.requests = 0
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                script.requests += 1
                status, headers, body = script.answers.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def scripted() -> Iterator[Script]:
    script = Script()
    yield script
    script.stop()
