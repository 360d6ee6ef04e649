"""What decoding is expected to take, from headers and from what was measured."""

import io

import pytest
from PIL import Image
from support.bombs import arithmetic_scans, many_scans

from uepnet.service.core.decode_cost import NO_WORK, REMEMBERED, CpuWork, WorkCosts, decode_work

LARGEST = 50_000_000


def saved(kind: str, size: tuple[int, int] = (301, 203), **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        saved("JPEG"),
        saved("JPEG", exif=b"Exif\x00\x00" + bytes(60_000)),
        saved("PNG"),
        saved("GIF"),
        saved("WEBP"),
        saved("WEBP", lossless=True),
        saved("WEBP", exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00"),
        saved("AVIF"),
    ],
    ids=["jpeg", "jpeg with metadata", "png", "gif", "webp", "lossless webp", "extended webp", "avif"],
)
def test_headers_tell_the_pixels(content: bytes) -> None:
    assert decode_work(content, LARGEST).pixels == 301 * 203
    assert decode_work(bytearray(content), LARGEST) == decode_work(content, LARGEST)


def test_scans_count() -> None:
    few, many = decode_work(many_scans(700, 700, 10), LARGEST), decode_work(many_scans(700, 700, 64), LARGEST)
    assert few.pixels == 490_000 * 2
    assert many.pixels == 490_000 * 7.4
    assert few.kind == many.kind
    assert decode_work(arithmetic_scans(700, 700, 64), LARGEST).kind != many.kind
    assert decode_work(saved("JPEG"), LARGEST).kind != many.kind


@pytest.mark.parametrize("kind", ["TIFF", "BMP"])
def test_where_the_header_does_not_tell_the_largest_image_is_expected(kind: str) -> None:
    assert decode_work(saved(kind), LARGEST).pixels == LARGEST


@pytest.mark.parametrize("content", [b"", b"no image", saved("PNG", (8000, 8000)), saved("JPEG")[:12], b"\xff\xd8"])
def test_what_is_refused_by_its_header_is_no_work(content: bytes) -> None:
    assert decode_work(content, LARGEST).pixels == 0


def test_hostile_headers_are_read_in_a_few_steps() -> None:
    for content in (
        b"\xff\xd8" + b"\xff\xe0\x00\x00" * 2**20,
        b"\xff\xd8" + b"\xff" * 2**22,
        b"\xff\xd8" + bytes(2**22),
    ):
        assert decode_work(content, LARGEST).pixels in (0, LARGEST)


def test_a_measured_time_corrects_what_is_expected_of_its_kind() -> None:
    costs, other = WorkCosts(), CpuWork("png", 1e6)
    before = costs.expected(other)
    costs.note(CpuWork("avif", 2e6), 10.0)
    assert costs.expected(CpuWork("avif", 4e6)) == pytest.approx(20.0)
    assert costs.expected(other) == before
    assert costs.expected(NO_WORK) == 0


def test_the_latest_images_count() -> None:
    costs, work = WorkCosts(), CpuWork("jpeg c0", 1e6)
    costs.note(work, 10.0)
    for _ in range(REMEMBERED):
        costs.note(work, 0.01)
    assert costs.expected(work) == pytest.approx(0.01)


def test_images_that_fail_early_do_not_make_others_look_cheap() -> None:
    costs, work = WorkCosts(), CpuWork("jpeg c2", 50e6)
    before = costs.expected(work)
    for _ in range(REMEMBERED):
        costs.note(work, 0.001, is_whole=False)
    assert costs.expected(work) == before
    costs.note(work, 10.0, is_whole=False)  # killed
    assert costs.expected(work) == pytest.approx(10.0)
