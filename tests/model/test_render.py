import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from uepnet.model.count import Count, Range
from uepnet.model.image import encode_png
from uepnet.model.render import heat_map, overlay, scale_top
from uepnet.model.tiling import cells_shape
from uepnet.model.zones import Zone, zone_counts


def photo(width: int, height: int) -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)


def counted(width: int, height: int, zones: tuple[Zone, ...] = (), ranged: bool = True) -> Count:
    """A crowd in the upper left quarter of the cells, nobody elsewhere."""
    rows, columns = cells_shape(width, height, 8)
    counts = np.zeros((rows, columns), np.float32)
    counts[: (rows + 1) // 2, : (columns + 1) // 2] = 0.5
    total = float(counts.sum())
    around = Range(total * 0.9, total * 1.2, 0.9) if ranged else None
    people = zone_counts(counts, zones, width, height, 8)
    return Count(total, around, counts, width, height, people, 0.0, (), 8)


def lightness(colours: NDArray[np.uint8]) -> NDArray[np.float64]:
    """CIE L* of sRGB colours [..., 3]: how bright an eye, colour-blind or not, sees them."""
    share = colours / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return np.asarray(116 * np.cbrt(linear @ (0.2126, 0.7152, 0.0722)) - 16)


def test_colours_brighten_evenly_so_that_they_can_be_read_in_grey() -> None:
    shares = np.linspace(0, 1, 33, dtype=np.float32) ** 2  # colours follow the root of the count
    bright = lightness(heat_map(shares[None], 33 * 8, 8, 8, top=1.0)[0, ::8])
    steps = np.diff(bright)
    assert bright[0] < 15 and bright[-1] > 85
    assert steps.min() > 0 and steps.max() < 2 * steps.mean()


def test_a_heat_map_has_the_image_size_and_one_colour_a_cell() -> None:
    counts = np.array([[0.0, 1.0], [0.25, 0.5]], np.float32)
    picture = heat_map(counts, width=13, height=10, cell=8)
    assert picture.shape == (10, 13, 3) and picture.dtype == np.uint8
    for rows, columns in ((slice(0, 8), slice(0, 8)), (slice(0, 8), slice(8, 13)), (slice(8, 10), slice(8, 13))):
        assert len(np.unique(picture[rows, columns].reshape(-1, 3), axis=0)) == 1
    assert not np.array_equal(picture[0, 0], picture[0, 12])


def test_cells_are_drawn_at_the_size_that_they_have() -> None:
    counts = np.array([[0.0, 1.0], [0.25, 0.5]], np.float32)
    drawn = heat_map(counts, width=30, height=20, cell=16)
    assert drawn.shape == (20, 30, 3)
    assert len({tuple(colour) for colour in drawn[:16, :16].reshape(-1, 3)}) == 1
    assert not np.array_equal(drawn[0, 15], drawn[0, 16])


def test_with_a_fixed_top_a_colour_means_the_same_in_every_frame() -> None:
    quiet, busy = np.array([[0.3, 0.4]], np.float32), np.array([[0.3, 2.0]], np.float32)
    same = [heat_map(counts, 16, 8, 8, top=2.0)[0, 0].tolist() for counts in (quiet, busy)]
    own = [heat_map(counts, 16, 8, 8)[0, 0].tolist() for counts in (quiet, busy)]
    assert same[0] == same[1] and own[0] != own[1]


@given(st.floats(0.0, 1e4, width=32))
def test_the_top_of_the_scale_is_at_or_little_above_the_largest_cell(largest: float) -> None:
    top = scale_top(np.array([[0.0, largest]], np.float32))
    assert top >= largest * (1 - 1e-5)
    assert top <= max(0.01, largest * 1.5)


def test_cells_with_nobody_show_the_image_untouched() -> None:
    image = photo(160, 80)
    picture = overlay(image, counted(160, 80))
    shown = picture[:80, :160]
    assert np.array_equal(shown[40:], image[40:])
    assert np.array_equal(shown[:, 80:], image[:, 80:])
    assert (shown[:40, :80] != image[:40, :80]).any(axis=2).mean() > 0.9


def test_the_caption_and_legend_lie_below_the_image() -> None:
    picture = overlay(photo(640, 100), counted(640, 100))
    assert picture.shape[1] == 640 and picture.shape[0] > 140
    caption, legend = picture[100:, :200], picture[100:, 440:]
    assert lightness(caption).max() > 80
    colourful = np.ptp(legend.astype(int), axis=2) > 60
    assert colourful.sum() > 1000


def test_the_picture_says_the_count_and_the_range() -> None:
    image = photo(640, 64)
    base = counted(640, 64)
    strip = overlay(image, base)[64:]
    other = replace(base, count=base.count + 100)
    assert not np.array_equal(overlay(image, other)[64:], strip)
    assert not np.array_equal(overlay(image, counted(640, 64, ranged=False))[64:], strip)


def test_a_zone_is_outlined_and_labelled_with_its_count() -> None:
    zone = Zone(name="gate", polygon=((120, 90), (300, 90), (300, 190), (120, 190)))
    image = np.full((200, 320, 3), 90, np.uint8)
    count = counted(320, 200, (zone,))
    plain, drawn = overlay(image, count)[:200], overlay(image, count, [zone])[:200]
    changed = (plain != drawn).any(axis=2)
    assert changed[90, 130:290].all() and changed[100:180, 300].all()
    assert changed[130:150, 190:230].mean() > 0.5  # the label
    assert not changed[:80].any() and not changed[:, :100].any()
    more = replace(count, zones=zone_counts(count.count_map * 3, [zone], 320, 200, 8))
    assert not np.array_equal(overlay(image, more, [zone])[:200], drawn)


def test_a_zone_without_a_count_shows_its_name_alone() -> None:
    zone = Zone(name="later", polygon=((20, 20), (100, 20), (60, 70)))
    assert overlay(photo(160, 80), counted(160, 80), [zone]).shape[1] >= 160


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 700), (700, 3)])
def test_tiny_and_narrow_images_are_drawn_too(width: int, height: int) -> None:
    zone = Zone(name="a very long name of a zone", units="fractions", polygon=((-1, -1), (2, -1), (2, 2), (-1, 2)))
    image = photo(width, height)
    picture = overlay(image, counted(width, height, (zone,)), [zone])
    assert picture.shape[0] > height and picture.shape[1] >= width
    assert overlay(image, counted(width, height)).dtype == np.uint8


def test_the_image_itself_is_never_drawn_upon() -> None:
    image = photo(64, 64)
    before = image.copy()
    overlay(image, counted(64, 64))
    assert np.array_equal(image, before)


def test_an_empty_scene_has_a_picture() -> None:
    image = photo(64, 64)
    nobody = Count(0.0, None, np.zeros((8, 8), np.float32), 64, 64, (), 0.0, (), 8)
    assert np.array_equal(overlay(image, nobody)[:64, :64], image)


def test_png_bytes_give_the_picture_back() -> None:
    picture = photo(33, 21)
    data = encode_png(picture)
    assert data.startswith(b"\x89PNG")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), picture)


@pytest.mark.parametrize("size", [(203, 117), (7, 5), (64, 64)])
def test_an_overlay_is_the_same_in_strips(monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]) -> None:
    whole = overlay(photo(*size), counted(*size))
    monkeypatch.setattr("uepnet.model.render.STRIP_PIXELS", 3000)
    assert np.array_equal(overlay(photo(*size), counted(*size)), whole)


def test_drawing_ends_at_the_next_step_when_it_is_told_to() -> None:
    """Between strips, before each zone and while the PNG is written, for both views."""
    size = (2000, 3000)
    zones = tuple(Zone(name=str(n), polygon=((n, 0), (n + 5, 0), (n + 5, 5))) for n in range(3))
    image, count = photo(*size), counted(*size, zones)
    steps = 0

    class Enough(Exception):
        pass

    def check() -> None:
        nonlocal steps
        steps += 1
        if steps == last:
            raise Enough

    def heat() -> NDArray[np.uint8]:
        return heat_map(count.count_map, *size, 8, check=check)

    def drawn() -> NDArray[np.uint8]:
        return overlay(image, count, zones, check=check)

    for draw, fewest in ((heat, 300), (drawn, 15), (lambda: encode_png(image, check), 100)):
        steps, last = 0, -1
        draw()
        assert steps >= fewest
        for last in (1, steps // 2, steps):
            steps = 0
            with pytest.raises(Enough):
                draw()
            assert steps == last
