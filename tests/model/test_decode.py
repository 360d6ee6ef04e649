import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.toy import HEADS, toy_artifact

from uepnet.model.decode import Maps, count_map, density_map, regrid
from uepnet.model.tiling import cells_shape

lengths = st.integers(1, 120)
cells = st.sampled_from([8, 16, 32])


def random_counts(width: int, height: int, cell: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).gamma(0.3, 1.0, cells_shape(width, height, cell)).astype(np.float32)


def test_argmax_is_the_mean_of_the_two_heads_proxies() -> None:
    first = np.array([[0, 1, 4]], np.uint8)
    second = np.array([[0, 2, 5]], np.uint8)
    counts = count_map(Maps((first, second)), toy_artifact())
    assert counts.dtype == np.float32
    assert counts.tolist() == [[0.0, pytest.approx((0.25 + 0.6) / 2), pytest.approx((4.0 + 4.5) / 2)]]


def test_one_head_counts_its_own_proxies() -> None:
    artifact = toy_artifact(
        heads=HEADS[:1], layout={"encoder": "vgg16", "width": 8, "classes": (len(HEADS[0].proxies),)}
    )
    assert count_map(Maps((np.array([[3]], np.uint8),)), artifact).tolist() == [[2.0]]


@pytest.mark.parametrize("decoding", ["expectation", "regression"])
def test_where_the_graph_counts_its_counts_are_taken(decoding: str) -> None:
    counts = np.array([[0.5, 1.5]], np.float32)
    classes = () if decoding == "regression" else (np.zeros((1, 2), np.uint8),) * 2
    decoded = count_map(Maps(classes, counts=counts), toy_artifact(decoding))  # type: ignore[arg-type]
    assert np.array_equal(decoded, counts)


def test_missing_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="expectation needs the graph's counts"):
        count_map(Maps((np.zeros((1, 1), np.uint8),) * 2), toy_artifact("expectation"))


def test_mirrored_maps_exchange_left_and_right_in_all_layers() -> None:
    layer = np.array([[1, 2, 3]])
    maps = Maps((layer.astype(np.uint8),), layer.astype(np.float32), layer.astype(np.float32)).mirrored()
    assert maps.counts is not None and maps.variance is not None
    for mirrored in (maps.classes[0], maps.counts, maps.variance):
        assert mirrored.tolist() == [[3, 2, 1]]


@given(lengths, lengths, cells, st.integers(0, 99))
def test_a_density_map_sums_to_the_count(width: int, height: int, cell: int, seed: int) -> None:
    counts = random_counts(width, height, cell, seed)
    density = density_map(counts, width, height, cell)
    assert density.shape == (height, width) and density.dtype == np.float32
    assert density.sum(dtype=np.float64) == pytest.approx(counts.sum(dtype=np.float64), rel=1e-5)


def test_a_cell_cut_by_the_edge_spreads_over_what_is_left_of_it() -> None:
    density = density_map(np.array([[64.0, 8.0]], np.float32), width=9, height=8, cell=8)
    assert (density[:, :8] == 1).all()
    assert (density[:, 8] == 1).all()


@given(lengths, lengths, st.floats(0.1, 4), cells, st.integers(0, 99))
def test_regridding_loses_nobody(width: int, height: int, scale: float, cell: int, seed: int) -> None:
    scaled = max(1, round(width * scale)), max(1, round(height * scale))
    counts = random_counts(*scaled, cell, seed)
    regridded = regrid(counts, (width, height), scaled, cell)
    assert regridded.shape == cells_shape(width, height, cell)
    assert regridded.sum(dtype=np.float64) == pytest.approx(counts.sum(dtype=np.float64), rel=1e-5)


@given(lengths, lengths, st.floats(0.1, 4), cells, st.integers(0, 99))
def test_regridding_puts_nobody_where_nobody_is(width: int, height: int, scale: float, cell: int, seed: int) -> None:
    """Not even the last digit's worth of a person below zero: who takes a root of it would get no number."""
    scaled = max(1, round(width * scale)), max(1, round(height * scale))
    counts = random_counts(*scaled, cell, seed)
    counts[counts < 0.5] = 0
    assert (regrid(counts, (width, height), scaled, cell) >= 0).all()
    counts[len(counts) // 2 :] = 0
    upper = -(-(len(counts) // 2) * cell * height // scaled[1])  # where the last of them end, in pixels of the image
    assert (regrid(counts, (width, height), scaled, cell)[upper // cell + 1 :] == 0).all()


@given(lengths, lengths, st.integers(0, 99))
def test_regridding_to_the_same_size_changes_nothing(width: int, height: int, seed: int) -> None:
    counts = random_counts(width, height, 8, seed)
    assert regrid(counts, (width, height), (width, height), 8) == pytest.approx(counts, abs=1e-5)


def test_people_stay_where_they_are_when_regridded() -> None:
    counts = np.zeros((10, 20), np.float32)  # of the image at twice its size
    counts[4, 6], counts[5, 7] = 3, 1
    regridded = regrid(counts, (80, 40), (160, 80), 8)
    assert regridded.shape == (5, 10)
    assert regridded[2, 3] == 4 and regridded.sum() == 4
