"""Decoding in processes: the same pixels, and an end to whatever takes too long or kills its decoder."""

import io
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.bombs import arithmetic_scans
from support.servers import encoded, grey
from support.waiting import SOON, eventually

from uepnet.model.errors import Cancelled, ImageError, ImageTooLarge, InferenceError
from uepnet.model.image import load_image
from uepnet.service.core.decoders import DecoderPool

PHOTO = np.random.default_rng(0).integers(0, 255, (600, 800, 3), dtype=np.uint8)
SLOW = arithmetic_scans(7000, 7000, 64)  # as many scans as are allowed: 4 seconds


def nobody_left() -> None:
    raise Cancelled("The client closed the connection.")


def still_waiting() -> None:
    pass


others: set[int] = set()  # decoding processes that belong to services of other tests


def children() -> set[int]:
    """The decoding processes of the pool under test."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"decode_worker" in entry.read_bytes():
                parent = int((entry.parent / "stat").read_text().rpartition(")")[2].split()[1])
                found |= {int(entry.parent.name)} if parent == os.getpid() else set()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found - others


@pytest.fixture
def pool() -> Iterator[DecoderPool]:
    others.clear()
    others.update(children())
    made = DecoderPool(50_000_000, 32_768, cpu_seconds=1)
    made.start()
    yield made
    made.stop()
    assert not children()


def test_a_thousand_open_connections_do_not_keep_images_from_being_decoded() -> None:
    """select.select fails for descriptors above 1023."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    pool = DecoderPool(50_000_000, 32_768, cpu_seconds=5)
    try:
        assert pool.decode(encoded(PHOTO), still_waiting).shape == PHOTO.shape
    finally:
        pool.stop()
        for descriptor in opened:
            os.close(descriptor)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF"])
def test_pixels_are_those_of_decoding_in_this_process(pool: DecoderPool, kind: str) -> None:
    content = encoded(PHOTO, kind)
    for given in (content, bytearray(content)):
        assert np.array_equal(pool.decode(given, still_waiting), load_image(content))


def test_shared_memory_is_used_again_once_nobody_looks_at_its_image(pool: DecoderPool) -> None:
    (process,) = children()
    before = shared_memories()  # of other tests' services, which are freed at some time
    images = [PHOTO[::-1], PHOTO[:, ::-1], PHOTO[:300]]
    first = pool.decode(encoded(PHOTO, "PNG"), still_waiting)[100:]  # a part of an image keeps all of it
    for image in images:
        assert np.array_equal(pool.decode(encoded(image, "PNG"), still_waiting), image)
        assert np.array_equal(first, PHOTO[100:])
    del first
    kept = shared_memories() - before
    assert len(kept) == 2  # that of the first image, and that of all others
    for image in images:
        assert np.array_equal(pool.decode(encoded(image, "PNG"), still_waiting), image)
    assert shared_memories() - before == kept
    assert children() == {process}
    pool.stop()
    assert not shared_memories() & kept


def shared_memories() -> set[int]:
    """The inodes of images that this process has in shared memory."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            if "uepnet-image" in str(descriptor.readlink()):
                found.add(descriptor.stat().st_ino)
        except FileNotFoundError:
            continue
    return found


def test_errors_are_those_of_decoding_in_this_process(pool: DecoderPool) -> None:
    for content in (b"", b"no image", encoded(PHOTO)[:1000], encoded(grey(40_000, 1))):
        with pytest.raises(ImageError) as here:
            load_image(content)
        with pytest.raises(ImageError) as there:
            pool.decode(content, still_waiting)
        assert (type(there.value), str(there.value)) == (type(here.value), str(here.value))
    assert pool.decode(encoded(PHOTO), still_waiting).shape == PHOTO.shape


def test_an_image_that_takes_too_long_is_refused_and_the_next_one_decoded() -> None:
    pool = DecoderPool(50_000_000, 32_768, cpu_seconds=0.1)  # the kernel counts whole seconds; SLOW takes 4
    try:
        with pytest.raises(ImageTooLarge, match=r"takes more than 0\.1 seconds"):
            pool.decode(SLOW, still_waiting)
        assert pool.decode(encoded(PHOTO), still_waiting).shape == PHOTO.shape
    finally:
        pool.stop()


def test_decoding_ends_when_nobody_waits_any_more(pool: DecoderPool) -> None:
    before = children()
    with pytest.raises(Cancelled):
        pool.decode(SLOW, nobody_left)
    assert not children() & before  # killed, not left to finish
    assert pool.decode(encoded(PHOTO), still_waiting).shape == PHOTO.shape


def test_a_decoder_that_is_still_starting_is_kept_for_the_next_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or images with short deadlines would kill one after the other."""
    others.clear()
    others.update(children())
    monkeypatch.setattr("uepnet.service.core.decoders.CHECK_SECONDS", 0.0)  # nobody waits from the very start
    pool = DecoderPool(50_000_000, 32_768, cpu_seconds=5)
    try:
        with pytest.raises(Cancelled):
            pool.decode(encoded(PHOTO), nobody_left)
        eventually(lambda: len(children()) == 1)  # a process gets its command line a moment after its start
        (process,) = children()
        assert pool.decode(encoded(PHOTO), still_waiting).shape == PHOTO.shape
        assert children() == {process}
    finally:
        pool.stop()


def test_a_decoder_that_dies_fails_its_own_image_alone(pool: DecoderPool) -> None:
    (process,) = children()
    for number, error in ((signal.SIGSEGV, ImageError), (signal.SIGKILL, InferenceError)):
        result: list[Exception] = []

        def decode(result: list[Exception] = result) -> None:
            try:
                pool.decode(SLOW, still_waiting)
            except (ImageError, InferenceError) as raised:
                result.append(raised)

        thread = threading.Thread(target=decode)
        thread.start()
        eventually(lambda process=process: busy(process))
        os.kill(process, number)
        thread.join(SOON)
        assert type(result[0]) is error
        assert pool.decode(encoded(PHOTO), still_waiting).shape == PHOTO.shape
        (process,) = children()


def busy(process: int) -> bool:
    """Whether a process has used some time of the processor since it waited."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return fields[0] == "R"


def test_signals_for_the_service_do_not_end_a_decoder(pool: DecoderPool) -> None:
    pool.decode(encoded(PHOTO), still_waiting)
    (process,) = children()
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(process, number)
    time.sleep(0.05)
    assert pool.decode(encoded(PHOTO), still_waiting).shape == PHOTO.shape
    assert children() == {process}


def test_the_pixels_of_an_image_are_told_by_its_header(pool: DecoderPool) -> None:
    assert pool.measure(SLOW, still_waiting) == 49_000_000
    with pytest.raises(ImageTooLarge):
        pool.measure(encoded(grey(40_000, 1)), still_waiting)
    with pytest.raises(ImageError):
        pool.measure(b"no image", still_waiting)


@pytest.mark.parametrize(("kind", "bytes_per_pixel"), [("PNG", 9), ("JPEG", 11), ("WEBP", 17), ("AVIF", 14)])
def test_memory_for_a_large_image_is_bounded_and_goes_back(
    pool: DecoderPool, kind: str, bytes_per_pixel: float
) -> None:
    pool.decode(encoded(PHOTO), still_waiting)
    (process,) = children()
    before = memory_mib(process, "VmHWM")
    content = io.BytesIO()
    Image.new("RGBA" if kind != "JPEG" else "RGB", (4000, 4000)).save(content, kind, **SAVING.get(kind, {}))
    pool.decode(content.getvalue(), still_waiting)
    assert memory_mib(process, "VmHWM") < before + bytes_per_pixel * 16_000_000 / 2**20
    eventually(lambda: memory_mib(process, "VmRSS") < 128)


SAVING: dict[str, dict[str, Any]] = {
    "JPEG": {"progressive": True, "subsampling": 0},
    "WEBP": {"save_all": True, "append_images": [Image.new("RGBA", (4000, 4000), "red")]},
    "AVIF": {"speed": 10},
}


def memory_mib(process: int, field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
