import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from uepnet.model.errors import ImageError, ImageTooLarge
from uepnet.model.image import KEPT_BLOCKS, load_image

# Red left, blue right, a green corner at the bottom left: tells all eight orientations apart.
SCENE = np.zeros((16, 24, 3), np.uint8)
SCENE[:, :12, 0] = 255
SCENE[:, 12:, 2] = 255
SCENE[10:, :6] = (0, 255, 0)


def encode(picture: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def exif(orientation: int) -> Image.Exif:
    record = Image.Exif()
    record[0x0112] = orientation
    return record


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and has no pixels."""
    chunks = b"\x89PNG\r\n\x1a\n"
    for name, data in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    ):
        chunks += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return chunks


LOSSLESS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "BMP": {},
    "TIFF": {"compression": "tiff_lzw"},
    "WEBP": {"lossless": True},
    "GIF": {},
}


@pytest.mark.parametrize("kind", LOSSLESS)
def test_lossless_formats_give_their_pixels(kind: str) -> None:
    image = load_image(encode(Image.fromarray(SCENE), kind, **LOSSLESS[kind]))
    assert image.dtype == np.uint8
    assert np.array_equal(image, SCENE)


@pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
def test_lossy_formats_give_nearly_their_pixels(kind: str) -> None:
    scene = np.repeat(np.repeat(SCENE, 4, axis=0), 4, axis=1)
    image = load_image(encode(Image.fromarray(scene), kind, quality=95))
    assert np.abs(image.astype(int) - scene).mean() < 6


def test_a_path_an_open_file_and_bytes_give_the_same(tmp_path: Path) -> None:
    data = encode(Image.fromarray(SCENE), "PNG")
    path = tmp_path / "scene.png"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert np.array_equal(load_image(file), load_image(data))
    assert np.array_equal(load_image(path), load_image(data))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_once(kind: str, orientation: int) -> None:
    # How a camera stores the upright scene under each orientation: the inverse of what a reader must do.
    stored = {
        1: SCENE,
        2: SCENE[:, ::-1],
        3: SCENE[::-1, ::-1],
        4: SCENE[::-1],
        5: SCENE.transpose(1, 0, 2),
        6: np.rot90(SCENE, 1),
        7: SCENE[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(SCENE, -1),
    }
    data = encode(Image.fromarray(np.ascontiguousarray(stored[orientation])), kind, exif=exif(orientation))
    image = load_image(data)
    assert image.shape == SCENE.shape
    assert np.abs(image.astype(int) - SCENE).mean() < 25


# The module silences Pillow's warnings when it is imported; pytest makes them errors again for each test.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_broken_exif_data_does_not_refuse_good_pixels() -> None:
    data = encode(Image.fromarray(SCENE), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert load_image(data).shape == SCENE.shape


def test_greyscale_becomes_three_equal_channels() -> None:
    image = load_image(encode(Image.fromarray(SCENE).convert("L"), "PNG"))
    assert image.shape == SCENE.shape
    assert (image[..., 0] == image[..., 1]).all()


def test_palette_and_bilevel_images_become_rgb() -> None:
    assert np.array_equal(load_image(encode(Image.fromarray(SCENE).convert("P"), "PNG")).shape, SCENE.shape)
    bilevel = load_image(encode(Image.fromarray(SCENE).convert("1"), "TIFF", compression="group4"))
    assert set(np.unique(bilevel)) <= {0, 255}


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_lies_on_white(mode: str) -> None:
    picture = Image.new("RGBA", (4, 2), (0, 0, 0, 0))
    picture.putpixel((0, 0), (0, 0, 0, 255))
    picture.putpixel((1, 0), (0, 0, 0, 128))
    image = load_image(encode(picture.convert(mode), "PNG"))
    assert image[0, 0].tolist() == [0, 0, 0]
    assert image[0, 1].tolist() == [127, 127, 127]
    assert image[1, 3].tolist() == [255, 255, 255]


def test_a_transparent_palette_colour_lies_on_white() -> None:
    picture = Image.new("P", (2, 1), 0)
    picture.putpalette([9, 9, 9, 200, 0, 0])
    picture.putpixel((1, 0), 1)
    for kind in ("PNG", "GIF"):
        image = load_image(encode(picture, kind, transparency=0))
        assert image.tolist() == [[[255, 255, 255], [200, 0, 0]]]


def test_cmyk_becomes_rgb() -> None:
    data = encode(Image.fromarray(SCENE).convert("CMYK"), "TIFF")
    assert np.array_equal(load_image(data), SCENE)
    assert load_image(encode(Image.new("CMYK", (8, 8), (0, 0, 0, 255)), "JPEG")).max() < 5


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_to_eight(kind: str) -> None:
    grey = np.array([[0, 128, 129, 257, 32768, 65535]], np.uint16)
    image = load_image(encode(Image.fromarray(grey), kind))
    assert image[0, :, 0].tolist() == [0, 0, 1, 1, 128, 255]


def test_thirty_two_bit_integers_count_as_sixteen_and_saturate() -> None:
    grey = np.array([[-5, 0, 65535, 1_000_000]], np.int32)
    assert load_image(encode(Image.fromarray(grey), "TIFF"))[0, :, 1].tolist() == [0, 0, 255, 255]


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_eight_bits_in_sixteen_would_be_black_and_are_refused(dtype: Any) -> None:
    data = encode(Image.fromarray(np.full((4, 4), 200, dtype)), "TIFF")
    with pytest.raises(ImageError, match="no value above 255: save it with 8 bits"):
        load_image(data)
    black = encode(Image.fromarray(np.zeros((4, 4), dtype)), "TIFF")
    assert load_image(black).max() == 0


def test_floating_point_samples_are_a_clear_error() -> None:
    data = encode(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF")
    with pytest.raises(ImageError, match="floating-point samples: save it with 8 or 16 bits"):
        load_image(data)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_an_animation_is_its_first_frame(kind: str) -> None:
    second = Image.fromarray(255 - SCENE)
    options = LOSSLESS.get(kind, {}) | {"save_all": True, "append_images": [second]}
    assert np.array_equal(load_image(encode(Image.fromarray(SCENE), kind, **options)), SCENE)


def test_the_limit_holds_before_pixels_are_decoded() -> None:
    with pytest.raises(ImageTooLarge, match="9000 x 8000 pixels; the limit is 50 megapixels"):
        load_image(png_header(9000, 8000))
    with pytest.raises(ImageTooLarge, match="the limit is 383 pixels"):
        load_image(encode(Image.fromarray(SCENE), "PNG"), max_pixels=SCENE.shape[0] * SCENE.shape[1] - 1)
    assert load_image(encode(Image.fromarray(SCENE), "PNG"), max_pixels=16 * 24).shape == SCENE.shape


@pytest.mark.parametrize(("width", "height"), [(10_000, 10_000), (60_000, 60_000)])
def test_a_decompression_bomb_is_refused_without_a_warning(width: int, height: int, tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(width, height))
    script = (
        "import sys, pathlib\n"
        "from uepnet.model.image import KEPT_BLOCKS, load_image, ImageTooLarge\n"
        "try: load_image(pathlib.Path(sys.argv[1]))\n"
        "except ImageTooLarge as error: sys.stdout.write(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert "50 megapixels" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"not an image", b"%PDF-1.7", b"<svg/>", b"\xff\xd8\xff"])
def test_what_is_no_image_is_one_clear_sentence(data: bytes) -> None:
    with pytest.raises(ImageError, match=r"^The file is not a whole image of a known format \(JPEG, PNG"):
        load_image(data)


def test_formats_outside_the_list_are_refused() -> None:
    for kind in ("ICO", "PPM", "TGA", "EPS"):
        with pytest.raises(ImageError, match="known format"):
            load_image(encode(Image.fromarray(SCENE), kind))


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"nowhere\.jpg cannot be read: No such file or directory\.$"):
        load_image(tmp_path / "nowhere.jpg")
    with pytest.raises(ImageError, match="Is a directory"):
        load_image(tmp_path)


FILES = {
    "jpeg": encode(Image.fromarray(SCENE), "JPEG", exif=exif(3)),
    "progressive": encode(Image.fromarray(SCENE), "JPEG", progressive=True),
    "png": encode(Image.fromarray(SCENE), "PNG", exif=exif(6)),
    "webp": encode(Image.fromarray(SCENE), "WEBP", lossless=True),
    "avif": encode(Image.fromarray(SCENE), "AVIF"),
    "bmp": encode(Image.fromarray(SCENE), "BMP"),
    "gif": encode(Image.fromarray(SCENE), "GIF"),
    "tiff": encode(Image.fromarray(SCENE), "TIFF", exif=exif(8)),
    "deflated tiff": encode(Image.fromarray(SCENE), "TIFF", compression="tiff_adobe_deflate"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_an_error_or_lacks_no_pixel(name: str) -> None:
    data = FILES[name]
    whole = load_image(data)
    refused = 0
    for length in range(0, len(data), max(1, len(data) // 150)):
        try:
            assert np.array_equal(load_image(data[:length]), whole)
        except ImageError:
            refused += 1
    assert refused > 50


@given(st.sampled_from(sorted(FILES)), st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=8))
def test_a_damaged_file_gives_pixels_or_an_image_error(name: str, damage: list[tuple[float, int]]) -> None:
    data = bytearray(FILES[name])
    for place, value in damage:
        data[int(place * len(data))] = value
    try:
        image = load_image(bytes(data), max_pixels=1_000_000)
    except ImageError as error:
        assert str(error).endswith(".")
    else:
        assert image.ndim == 3 and image.shape[2] == 3 and image.size > 0


def test_the_memory_of_images_is_used_again() -> None:
    content = encode(Image.new("RGB", (640, 480), "grey"), "JPEG")
    load_image(content)
    before = Image.core.get_stats()["reused_blocks"]
    for _ in range(3):
        load_image(content)
    assert Image.core.get_stats()["reused_blocks"] >= before + 3
    assert Image.core.get_stats()["blocks_cached"] <= KEPT_BLOCKS


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "1", "I;16", "CMYK"])
def test_pixels_are_the_same_in_strips(monkeypatch: pytest.MonkeyPatch, mode: str, orientation: int) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (23, 17, 3), dtype=np.uint8)
    deep = Image.fromarray(noise[..., 0].astype(np.uint16) * 257)
    picture = deep if mode == "I;16" else Image.fromarray(noise).convert(mode)
    data = encode(picture, "TIFF" if mode == "CMYK" else "PNG", exif=exif(orientation))
    whole = load_image(data)
    monkeypatch.setattr("uepnet.model.image.STRIP_PIXELS", 40)
    assert np.array_equal(load_image(data), whole)
    if mode != "I;16":  # which Pillow does not scale
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        opaque = Image.new("RGBA", upright.size, "white")
        opaque.alpha_composite(upright.convert("RGBA"))
        assert np.array_equal(whole, np.asarray(opaque.convert("RGB")))


def test_a_dark_strip_of_a_deep_image_is_no_reason_to_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = np.zeros((40, 17), np.uint16)
    deep[:20], deep[20:] = 7, 65535
    monkeypatch.setattr("uepnet.model.image.STRIP_PIXELS", 40)
    pixels = load_image(encode(Image.fromarray(deep), "PNG"))
    assert (pixels[:20] == 0).all() and (pixels[20:] == 255).all()
