"""Enlarging is Pillow's, made otherwise: the same pixels, whatever part of them is asked for."""

from itertools import product

import numpy as np
import pytest
from PIL import Image

from uepnet.model import enlarge as module
from uepnet.model.enlarge import enlarge
from uepnet.model.scale import FILTER, resized_part

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.integers(0, 256, (150, 230, 3), dtype=np.uint8)


@pytest.mark.parametrize("larger", [(276, 180), (322, 210), (403, 262), (460, 300), (1000, 653)])
def test_pixels_are_those_of_pillow_but_for_rounding(larger: tuple[int, int]) -> None:
    made = np.empty((larger[1], larger[0], 3), np.uint8)
    enlarge(IMAGE, (0, 0), (230, 150), larger, (0, 0), made)
    apart = made.astype(int) - np.asarray(Image.fromarray(IMAGE).resize(larger, FILTER))
    assert np.abs(apart).max() <= 2  # a value that is rounded to the other side, times the second axis' weight
    assert (apart != 0).mean() < 0.001


def test_a_part_comes_from_what_is_known_of_the_image() -> None:
    whole = np.empty((600, 900, 3), np.uint8)
    enlarge(IMAGE, (0, 0), (230, 150), (900, 600), (0, 0), whole)
    part = np.full((290, 400, 3), 7, np.uint8)
    enlarge(IMAGE[50:140, 70:190], (70, 50), (230, 150), (900, 600), (310, 230), part)
    assert np.array_equal(part, whole[230:520, 310:710])


def test_no_product_is_large_enough_for_threads_of_blas() -> None:
    """OpenBLAS starts them above 4 * 65536 multiplications, and they would spin beside the network's."""
    for side, larger in product((100, 1080, 4000), (1.2, 1.5, 1.75, 3.0)):
        for _, used, weights in module._bands(0, 100, side, round(side * larger), 3):
            assert module.PRODUCT_ROWS * (used.stop - used.start) * weights.shape[1] <= 4 * 65536
        for _, _, weights in module._bands(0, 100, side, round(side * larger)):
            assert weights.size * 3 * module.PIECE_COLUMNS <= 4 * 65536


def test_parts_are_written_into_the_array_that_is_given() -> None:
    size, box = (345, 225), (40, 30, 200, 100)
    tile = np.zeros((128, 256, 3), np.uint8)
    resized_part(IMAGE, size, box, into=tile[:100, :200])
    assert np.array_equal(tile[:100, :200], resized_part(IMAGE, size, box))
    assert not tile[100:].any()
    assert not tile[:, 200:].any()
