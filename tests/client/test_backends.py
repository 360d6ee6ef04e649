import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.servers import Running, encoded, eventually

from uepnet.client.backends import InProcess, OverServer, count_fields, in_order, without_loss
from uepnet.client.client import Client
from uepnet.client.tiff import tiff
from uepnet.model.image import load_image
from uepnet.model.runtime import Runtime
from uepnet.model.zones import Zone

LEFT = Zone(name="left", units="fractions", polygon=((0, 0), (0.5, 0), (0.5, 1), (0, 1)))


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 8), st.integers(0, 8))
def test_results_come_in_the_order_of_the_items(pauses: list[int], in_flight: int, ahead: int) -> None:
    items = list(enumerate(pauses))

    def work(item: tuple[int, int]) -> int:
        time.sleep(item[1] / 1000)
        return item[0]

    assert list(in_order(items, work, in_flight, ahead)) == [(item, item[0]) for item in items]


def test_items_are_drawn_only_when_there_is_room() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            drawn.append(number)
            yield number

    results = in_order(items(), lambda item: item, in_flight=3, ahead=2)
    for consumed in range(20):
        next(results)
        assert len(drawn) <= consumed + 5  # what waits here, and room for five
    results.close()


def test_many_items_are_in_flight_at_once() -> None:
    meeting = threading.Barrier(4)
    assert len(list(in_order(range(8), lambda _: meeting.wait(30), in_flight=4))) == 8


def test_a_source_that_stands_still_holds_no_result_back() -> None:
    resume = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        assert resume.wait(30)
        yield 2

    results = in_order(items(), lambda item: item, in_flight=4)
    assert next(results) == (1, 1)  # while the source waits
    resume.set()
    assert list(results) == [(2, 2)]


def test_a_failing_source_fails_after_the_results_of_what_it_gave() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    results = in_order(items(), lambda item: item, in_flight=2)
    assert next(results) == (1, 1)
    with pytest.raises(OSError, match="gone"):
        next(results)


def test_work_that_fails_ends_the_results() -> None:
    results = in_order([1, 0, 2], lambda item: 1 // item, in_flight=3)
    assert next(results) == (1, 1)
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_closing_stops_drawing() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10**9):
            drawn.append(number)
            yield number

    results = in_order(items(), lambda item: item, in_flight=2)
    next(results)
    results.close()
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("draw")])
    assert len(drawn) < 10


def test_in_process_and_over_a_server_a_frame_has_the_same_count(service: Running, model_dir: Path) -> None:
    image = np.random.default_rng(5).integers(0, 256, (100, 150, 3), np.uint8)
    runtime = Runtime(model_dir, device="cpu")
    here = InProcess(runtime.artifact, runtime.run_tiles)
    there = OverServer(Client(service.url), with_map=True)
    for picture in (image, encoded(image)):
        first, second = here.count(picture, [LEFT]), there.count(picture, [LEFT])
        assert count_fields(*first) == count_fields(*second)
        assert np.array_equal(first[0].count_map, second[0].count_map)
    assert here.model == there.model == ("toy", "1")
    there.close()


@pytest.mark.parametrize(("packed", "start"), [(False, b"II*\x00"), (True, b"\x89PNG")])
def test_frames_travel_without_loss(packed: bool, start: bytes) -> None:
    image = np.random.default_rng(5).integers(0, 256, (31, 47, 3), np.uint8)
    content = without_loss(image, packed)
    assert content.startswith(start)
    assert np.array_equal(load_image(content), image)


def test_count_maps_travel_only_where_they_are_drawn(service: Running) -> None:
    backend = OverServer(Client(service.url))
    count, _ = backend.count(encoded(np.zeros((64, 64, 3), np.uint8)), [LEFT])
    assert count.count_map.size == 0
    assert count.zones[0].name == "left"
    backend.close()


@given(st.integers(1, 70), st.integers(1, 70))
def test_an_unpacked_frame_of_any_size_is_read_as_it_was(width: int, height: int) -> None:
    image = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
    assert np.array_equal(load_image(tiff(image)), image)
    turned = image.transpose(1, 0, 2)  # not contiguous
    assert np.array_equal(load_image(tiff(turned)), turned)


def test_a_frame_too_large_for_a_body_is_packed() -> None:
    assert without_loss(np.zeros((3000, 3000, 3), np.uint8), packed=False).startswith(b"\x89PNG")
