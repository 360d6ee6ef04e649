import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from uepnet.model.scale import FILTER, resized, resized_part, scaled_size
from uepnet.model.tiling import cut, padded, windows

# Pillow rounds after each axis, and which comes first depends on the sizes: half a level, grown by the second axis'
# weights (at most 1.4 in all), and half a level more, on either side.
ROUNDING = 2


def noise(width: int, height: int) -> np.ndarray:
    """Without black and white: the filter overshoots, and where it is cut off depends on Pillow's order of axes."""
    return np.random.default_rng(width + height).integers(64, 192, (height, width, 3), np.uint8)


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([0.3, 0.75, 1.4, 2.0, 3.7]), st.data())
def test_a_part_is_that_part_of_the_whole(width: int, height: int, scale: float, data: st.DataObject) -> None:
    image = noise(width, height)
    whole = resized(image, scale)
    size = scaled_size(width, height, scale)
    assert whole.shape == (size[1], size[0], 3)
    x, y = data.draw(st.integers(0, size[0] - 1)), data.draw(st.integers(0, size[1] - 1))
    part = (x, y, data.draw(st.integers(1, size[0] - x)), data.draw(st.integers(1, size[1] - y)))
    found = resized_part(image, size, part).astype(int)
    wanted = whole[y : y + part[3], x : x + part[2]].astype(int)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= ROUNDING


def test_an_image_at_its_own_size_is_not_copied() -> None:
    image = noise(20, 10)
    assert resized(image, 1) is image


@pytest.mark.parametrize("scale", [0.6, 1.4])
def test_tiles_of_a_resized_image_are_those_of_the_image_resized_whole(scale: float) -> None:
    image = noise(500, 300)
    size = scaled_size(500, 300, scale)
    whole = resized(image, scale)
    places = windows(*size, tile=160, halo=16, cell=8)
    assert len(places) > 1
    for window in places:
        tile = padded(resized_part(image, size, window.within(*size)), window, (1, 2, 3))
        assert np.abs(tile.astype(int) - cut(whole, window, (1, 2, 3))).max() <= ROUNDING


def test_a_part_of_very_many_pixels_is_made_in_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    image = noise(400, 300)
    whole = resized(image, 0.5)
    monkeypatch.setattr("uepnet.model.scale.MAX_SOURCE_PIXELS", 20_000)
    assert np.abs(resized(image, 0.5).astype(int) - whole).max() <= ROUNDING


def test_an_image_that_shrinks_to_half_is_made_of_the_means_of_its_blocks() -> None:
    image = noise(400, 300)
    means = image.reshape(150, 2, 200, 2, 3).mean(axis=(1, 3))
    assert np.abs(resized_part(image, (200, 150), (0, 0, 200, 150)) - means).max() <= 0.5


@pytest.mark.parametrize("scale", [0.26, 0.5])
def test_smooth_pixels_stay_in_place_when_blocks_are_averaged(scale: float) -> None:
    across, down = np.meshgrid(np.arange(403), np.arange(301))
    ramp = np.stack([across / 2, down / 2, np.full_like(down, 90)], axis=-1).astype(np.uint8)
    wanted = np.asarray(Image.fromarray(ramp).resize(scaled_size(403, 301, scale), FILTER)).astype(int)
    assert np.abs(resized(ramp, scale) - wanted).max() <= 2
