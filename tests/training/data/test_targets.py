import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from uepnet.training.data.targets import Kernel, inside, local_counts

crowds = st.builds(
    lambda seed, people, width, height: (
        np.random.default_rng(seed).uniform((-20, -20), (width + 20, height + 20), (people, 2)),
        (width, height),
    ),
    st.integers(0, 10_000),
    st.integers(0, 60),
    st.integers(9, 200),
    st.integers(9, 200),
)


@settings(max_examples=60)
@given(crowds, st.sampled_from([8, 16, 32]), st.sampled_from([Kernel(), Kernel(fixed=15.0), Kernel(fixed=0.5)]))
def test_cells_sum_to_the_people_inside_the_frame(
    crowd: tuple[np.ndarray, tuple[int, int]], cell: int, kernel: Kernel
) -> None:
    points, size = crowd
    counts = local_counts(points, kernel.sigmas(points, *size), size, cell)
    assert counts.shape == (-(-size[1] // cell), -(-size[0] // cell))
    assert counts.sum() == pytest.approx(inside(points, *size).sum(), rel=1e-5, abs=1e-6)
    assert counts.min() >= 0


@settings(max_examples=40)
@given(crowds, st.integers(0, 10), st.integers(0, 10))
def test_a_crop_s_cells_are_the_image_s_cells(crowd: tuple[np.ndarray, tuple[int, int]], column: int, row: int) -> None:
    points, size = crowd
    sigmas = Kernel().sigmas(points, *size)
    whole = np.pad(local_counts(points, sigmas, size, 8), ((0, 40), (0, 40)))
    part = local_counts(points, sigmas, size, 8, crop=(8 * column, 8 * row, 64, 32))
    assert np.allclose(part, whole[row : row + 4, column : column + 8], atol=1e-6)


def test_the_closed_form_agrees_with_filtering_a_density_map() -> None:
    point = np.array([[64.5, 40.5]])
    dots = np.zeros((96, 128))
    dots[40, 64] = 1
    density = gaussian_filter(dots, 5.0, truncate=8)
    filtered = density.reshape(12, 8, 16, 8).sum((1, 3))
    assert np.abs(local_counts(point, np.array([5.0]), (128, 96), 8) - filtered).max() < 1e-3


def test_mirroring_the_points_mirrors_the_cells() -> None:
    points = np.random.default_rng(0).uniform(0, 128, (30, 2))
    sigmas = Kernel().sigmas(points, 128, 128)
    mirrored = points * (-1, 1) + (128, 0)
    expected = local_counts(points, sigmas, (128, 128), 8)[:, ::-1]
    assert np.allclose(local_counts(mirrored, sigmas, (128, 128), 8), expected, atol=1e-6)


def test_sigma_is_a_third_of_the_mean_distance_to_three_neighbours() -> None:
    points = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 20.0], [30.0, 0.0], [1000.0, 1000.0]])
    assert Kernel().sigmas(points, 2000, 2000)[0] == pytest.approx(0.3 * 20)


def test_a_lone_person_is_as_wide_as_a_tenth_of_the_short_side() -> None:
    assert Kernel().sigmas(np.array([[5.0, 5.0]]), 300, 200) == pytest.approx([20.0])


def test_people_marked_twice_and_nobody_at_all_are_survived() -> None:
    twice = np.full((4, 2), 33.0)
    assert local_counts(twice, Kernel().sigmas(twice, 64, 64), (64, 64), 8).sum() == pytest.approx(4)
    nobody = np.zeros((0, 2))
    assert local_counts(nobody, Kernel().sigmas(nobody, 64, 64), (64, 64), 8).sum() == 0


def test_adaptive_widths_stay_within_their_bounds() -> None:
    points = np.random.default_rng(1).uniform(0, 500, (40, 2))
    sigmas = Kernel(smallest=4, largest=15).sigmas(points, 500, 500)
    assert sigmas.min() >= 4 and sigmas.max() <= 15
