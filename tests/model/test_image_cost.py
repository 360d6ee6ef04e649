"""What decoding would cost is refused before it is paid."""

import io

import numpy as np
import pytest
from PIL import Image, ImageFile
from support.bombs import many_scans

from uepnet.model.errors import ImageTooLarge
from uepnet.model.image import load_image
from uepnet.model.image_cost import MAX_SCANS, scans

NOISE = np.random.default_rng(0).integers(0, 255, (80, 120, 3), dtype=np.uint8)


def encode(kind: str, image: Image.Image | None = None, **options: object) -> bytes:
    file = io.BytesIO()
    (image or Image.fromarray(NOISE)).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(("options", "least", "most"), [({}, 1, 1), ({"progressive": True}, 2, 16)])
def test_the_scans_of_a_jpeg_are_counted_in_its_data(options: dict[str, bool], least: int, most: int) -> None:
    for quality in (30, 95):
        assert least <= scans(encode("JPEG", quality=quality, **options)) <= most


def test_scans_in_metadata_and_after_the_end_do_not_count() -> None:
    preview = encode("JPEG", progressive=True)
    content = encode("JPEG", exif=b"Exif\0\0" + preview) + preview * 20
    assert scans(content) == 1
    assert load_image(content).shape == NOISE.shape


@pytest.mark.parametrize("restarts", [1, 8])
def test_restart_markers_are_no_scans(restarts: int) -> None:
    assert scans(encode("JPEG", restart_marker_rows=restarts)) == 1


def test_a_jpeg_with_too_many_scans_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_image(many_scans(64, 64, MAX_SCANS)).shape == (64, 64, 3)
    content = many_scans(7000, 7000, 1000)
    assert len(content) < 600_000
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)  # decoding would fail
    with pytest.raises(ImageTooLarge, match="more than 64 scans"):
        load_image(content)


@pytest.mark.parametrize("size", [(1, 40_000), (40_000, 1)])
def test_each_side_is_limited(size: tuple[int, int]) -> None:
    with pytest.raises(ImageTooLarge, match="each side may have at most 32768"):
        load_image(encode("PNG", Image.new("RGB", size)))


def test_a_panorama_is_within_the_limits() -> None:
    assert load_image(encode("PNG", Image.new("RGB", (32_768, 50)))).shape == (50, 32_768, 3)


def test_a_tiff_of_too_many_strips_is_refused() -> None:
    ordinary = encode("TIFF")
    assert load_image(ordinary).shape == NOISE.shape
    tall = Image.new("L", (1, 32_000))
    assert load_image(encode("TIFF", tall, tiffinfo={278: 1})).shape == (32_000, 1, 3)
    file = io.BytesIO()
    with pytest.raises(ImageTooLarge, match="more than 65536 tiles or strips"):
        Image.new("L", (1, 70_000)).save(file, "TIFF", tiffinfo={278: 1})
        load_image(file.getvalue(), max_side=100_000)
