import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from uepnet.model.decode import Maps
from uepnet.model.stitch import stitch
from uepnet.model.tiling import Tile, Window, cells_shape, cut, windows, windows_of

BLOCK = 32  # the network's multiple

sizes = st.tuples(st.integers(1, 900), st.integers(1, 900))


@st.composite
def tilings(draw: st.DrawFn) -> tuple[int, int, int]:
    """(tile, halo, cell) as an artifact may hold them."""
    tile = BLOCK * draw(st.integers(2, 10))
    cell = draw(st.sampled_from([8, 16, 32]))
    halo = 8 * draw(st.integers(0, (tile - BLOCK) // 16))
    assume(tile - 2 * (-(-halo // cell) * cell) >= BLOCK)
    return tile, halo, cell


def padded(length: int) -> int:
    return -(-length // BLOCK) * BLOCK


@given(sizes, tilings())
def test_every_cell_of_the_image_is_owned_exactly_once(size: tuple[int, int], tiling: tuple[int, int, int]) -> None:
    tile, halo, cell = tiling
    owners = np.zeros(cells_shape(*size, cell), int)
    for window in windows(*size, tile, halo, cell):
        owners[window.owned] += 1
        assert window.rows[0] < window.rows[1] and window.columns[0] < window.columns[1]
    assert (owners == 1).all()


@given(sizes, tilings())
def test_windows_are_equal_aligned_and_inside_the_padded_image(
    size: tuple[int, int], tiling: tuple[int, int, int]
) -> None:
    tile, halo, cell = tiling
    places = windows(*size, tile, halo, cell)
    assert len({(window.width, window.height) for window in places}) == 1
    for window in places:
        assert window.width <= max(tile, 0) and window.height <= tile
        assert all(value % BLOCK == 0 for value in (window.x, window.y, window.width, window.height))
        assert window.x >= 0 and window.x + window.width <= padded(size[0])
        assert window.y >= 0 and window.y + window.height <= padded(size[1])


@given(sizes, tilings())
def test_an_owned_cell_keeps_a_halo_from_every_inner_edge(size: tuple[int, int], tiling: tuple[int, int, int]) -> None:
    tile, halo, cell = tiling
    for window in windows(*size, tile, halo, cell):
        for start, length, (first, last), limit in (
            (window.x, window.width, window.columns, padded(size[0])),
            (window.y, window.height, window.rows, padded(size[1])),
        ):
            if start > 0:
                assert first * cell - start >= halo
            if start + length < limit:
                assert start + length - last * cell >= halo


@given(st.integers(1, 5000), tilings())
def test_no_fewer_windows_would_do(length: int, tiling: tuple[int, int, int]) -> None:
    tile, halo, cell = tiling
    number = len(windows(length, 8, tile, halo, cell))
    overlap = padded(2 * (-(-halo // cell) * cell))
    reach = (number - 1) * tile - max(0, number - 2) * overlap
    assert reach < padded(length)


def test_an_image_up_to_the_tile_is_one_window_padded_to_the_multiple() -> None:
    assert windows(1000, 33, tile=1024, halo=64, cell=8) == (Window(0, 0, 1024, 64, (0, 5), (0, 125), 8),)
    assert windows(1, 1, tile=1024, halo=64, cell=8) == (Window(0, 0, 32, 32, (0, 1), (0, 1), 8),)


def test_without_a_halo_it_is_the_plain_sliding_window() -> None:
    places = windows(2048, 1024, tile=1024, halo=0, cell=8)
    assert [(window.x, window.width, window.columns) for window in places] == [
        (0, 1024, (0, 128)),
        (1024, 1024, (128, 256)),
    ]


def test_an_image_just_above_the_tile_is_two_halves_with_overlap() -> None:
    left, right = windows(1056, 32, tile=1024, halo=64, cell=8)
    assert (left.x, left.width) == (0, 608)
    assert (right.x, right.width) == (448, 608)
    assert left.columns[1] == right.columns[0] == (448 + 608) // 2 // 8


def test_a_halo_that_leaves_nothing_of_a_tile_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves no cells"):
        windows(500, 500, tile=128, halo=64, cell=8)


def test_a_tile_inside_the_image_is_a_view() -> None:
    image = np.zeros((200, 300, 3), np.uint8)
    tile = cut(image, Window(32, 64, 128, 96, (8, 20), (4, 20), 8), (1, 2, 3))
    assert np.shares_memory(tile, image)
    assert tile.shape == (96, 128, 3)


def test_a_tile_past_the_edge_is_filled_with_the_padding_colour() -> None:
    image = np.full((40, 20, 3), 9, np.uint8)
    tile = cut(image, Window(0, 32, 32, 32, (4, 5), (0, 3), 8), (1, 2, 3))
    assert (tile[:8, :20] == 9).all()
    assert (tile[8:] == (1, 2, 3)).all() and (tile[:, 20:] == (1, 2, 3)).all()


def blurred_cells(tile: Tile, radius: int, cell: int) -> Maps:
    """A linear toy network: each pixel becomes the sum of a box around it, each cell the sum of its pixels."""
    plane = np.pad(tile[..., 0].astype(np.int64), radius)
    for axis in (0, 1):
        plane = np.moveaxis(plane, axis, 0)
        below = np.vstack([np.zeros_like(plane[:1]), plane.cumsum(axis=0)])
        plane = np.moveaxis(below[2 * radius + 1 :] - below[: -2 * radius - 1], 0, axis)
    height, width = plane.shape
    cells = plane.reshape(height // cell, cell, width // cell, cell).sum(axis=(1, 3))
    return Maps(classes=(), counts=cells.astype(np.float32))


@settings(max_examples=60)
@given(st.tuples(st.integers(1, 500), st.integers(1, 500)), tilings(), st.data())
def test_a_linear_network_sees_the_same_tiled_and_whole(
    size: tuple[int, int], tiling: tuple[int, int, int], data: st.DataObject
) -> None:
    (width, height), (tile, halo, cell) = size, tiling
    radius = data.draw(st.integers(0, min(halo, 40)))
    seed = data.draw(st.integers(0, 1000))
    image = np.random.default_rng(seed).integers(0, 2, (height, width, 3), dtype=np.uint8)

    def counted(limit: int, context: int) -> NDArray[np.float32]:
        places = windows(width, height, limit, context, cell)
        answers = (blurred_cells(cut(image, window, (0, 0, 0)), radius, cell) for window in places)
        counts = stitch(places, answers, cells_shape(width, height, cell)).counts
        assert counts is not None
        return counts

    assert np.array_equal(counted(tile, halo), counted(1024, 0))


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    width, height = draw(st.integers(1, 700)), draw(st.integers(1, 700))
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    return (width, height), (x, y, draw(st.integers(1, width - x)), draw(st.integers(1, height - y)))


@given(boxes(), tilings(), st.integers(0, 3))
def test_windows_of_a_box_own_its_cells_once_with_a_halo_around_each(
    place: tuple[tuple[int, int], tuple[int, int, int, int]], tiling: tuple[int, int, int], margin: int
) -> None:
    (size, (x, y, width, height)), (tile, halo, cell) = place, tiling
    rows, columns = cells_shape(*size, cell)
    owned = np.zeros((rows, columns), int)
    found = windows_of((x, y, width, height), size, tile, halo, cell, margin=margin)
    for window in found:
        assert window.x % 32 == window.y % 32 == window.width % 32 == window.height % 32 == 0
        assert max(window.width, window.height) <= tile
        assert window.x < size[0] and window.y < size[1]
        owned[window.owned] += 1
        for start, length, side, cells in (
            (window.x, window.width, size[0], window.columns),
            (window.y, window.height, size[1], window.rows),
        ):
            assert start == 0 or start <= cells[0] * cell - halo
            assert start + length >= min(side, cells[1] * cell + halo)
    expected = np.zeros_like(owned)
    top, left = max(0, y // cell - margin), max(0, x // cell - margin)
    expected[top : -(-(y + height) // cell) + margin, left : -(-(x + width) // cell) + margin] = 1
    assert np.array_equal(owned, expected)


def test_only_windows_at_the_edge_of_the_image_reach_past_it() -> None:
    for window in windows_of((100, 100, 50, 60), (1000, 900), tile=256, halo=32, cell=8):
        assert window.within(1000, 900) == (window.x, window.y, window.width, window.height)
