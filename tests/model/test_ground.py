"""Ground density against scenes projected from known places: a pinhole camera above a flat square."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from uepnet.model.ground import HEAD_METRES, Ground, GroundError, GroundPlane, ground_density, level

WIDTH, HEIGHT, CELL = 1280, 720, 8
RECTANGLE = np.array([(-6.0, 8.0), (6.0, 8.0), (6.0, 20.0), (-6.0, 20.0)])  # metres, corners in order


@dataclass(frozen=True)
class PinholeCamera:
    """At (0, 0, height), looking along y and down by `tilt` degrees, turned by `pan`."""

    height: float = 8.0
    tilt: float = 30.0
    pan: float = 0.0
    focal: float = 1000.0

    def pixels(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n, 3] metres -> [n, 2] pixels."""
        tilt, pan = np.radians(self.tilt), np.radians(self.pan)
        turn = np.array([[np.cos(pan), -np.sin(pan), 0], [np.sin(pan), np.cos(pan), 0], [0, 0, 1]])
        x, y, z = ((places - (0, 0, self.height)) @ turn.T).T
        depth = y * np.cos(tilt) - z * np.sin(tilt)
        down = -y * np.sin(tilt) - z * np.cos(tilt)
        return np.stack([WIDTH / 2 + self.focal * x / depth, HEIGHT / 2 + self.focal * down / depth], axis=1)

    def at(self, places: NDArray[np.float64], z: float) -> NDArray[np.float64]:
        return self.pixels(np.column_stack([places, np.full(len(places), z)]))


def plane(camera: PinholeCamera, metres: NDArray[np.float64] = RECTANGLE) -> GroundPlane:
    points = camera.at(metres, 0.0)
    ground = Ground(points=[tuple(point) for point in points], metres=[tuple(place) for place in metres])
    return GroundPlane.of(ground, "pixels", WIDTH, HEIGHT)


CAMERAS = [
    PinholeCamera(),
    PinholeCamera(12, 45),
    PinholeCamera(5, 20, 15),
    PinholeCamera(20, 60, -30, 1400),
    PinholeCamera(6, 25, 0, 700),
]


@pytest.mark.parametrize("camera", CAMERAS)
def test_heads_are_placed_where_their_people_stand(camera: PinholeCamera) -> None:
    people = np.random.default_rng(1).uniform((-5, 9), (5, 19), (50, 2))
    found, below = plane(camera).metres(camera.at(people, HEAD_METRES))
    assert below.all()
    assert np.abs(found - people).max() < 0.01
    assert plane(camera).corrected


@pytest.mark.parametrize("camera", CAMERAS)
@pytest.mark.parametrize("true_density", [0.5, 3.0])
def test_the_density_of_a_zone_is_within_ten_percent(camera: PinholeCamera, true_density: float) -> None:
    """A crowd far wider than the zone; the zone is drawn on the picture; its people are those whose heads are in it."""
    # On a jittered grid: placed at random, a few dozen people would vary by more than what is tested.
    spacing = true_density**-0.5
    grid = np.stack(np.meshgrid(np.arange(-40, 40, spacing), np.arange(2, 82, spacing)), axis=-1).reshape(-1, 2)
    people = grid + np.random.default_rng(2).uniform(-0.2 * spacing, 0.2 * spacing, grid.shape)
    heads = camera.at(people, HEAD_METRES)
    left, right = 0.3 * WIDTH, 0.7 * WIDTH
    top, bottom = (float(np.quantile(camera.at(RECTANGLE, HEAD_METRES)[:, 1], share)) for share in (0.0, 1.0))
    top, bottom = max(top, 0.0), min(bottom, float(HEIGHT))
    inside = (heads[:, 0] > left) & (heads[:, 0] < right) & (heads[:, 1] > top) & (heads[:, 1] < bottom)
    area = plane(camera).area(np.array([(left, top), (right, top), (right, bottom), (left, bottom)]))
    assert area is not None and area >= 10
    assert inside.sum() / area == pytest.approx(true_density, rel=0.1)


@pytest.mark.parametrize("camera", CAMERAS)
def test_the_map_of_density_is_right_inside_and_empty_outside_a_crowd(camera: PinholeCamera) -> None:
    people = np.random.default_rng(3).uniform((-5, 9), (5, 19), (300, 2))  # 3 people per square metre
    heads = camera.at(people, HEAD_METRES)
    cells = np.zeros((HEIGHT // CELL, WIDTH // CELL), np.float32)
    for x, y in heads:
        if 0 <= x < WIDTH and 0 <= y < HEIGHT:
            cells[int(y // CELL), int(x // CELL)] += 1
    density = ground_density(cells, WIDTH, HEIGHT, CELL, plane(camera))
    grid = np.stack(np.meshgrid(np.linspace(-2.5, 2.5, 6), np.linspace(11.5, 16.5, 6)), axis=-1).reshape(-1, 2)
    inner = camera.at(grid, HEAD_METRES)
    values = [density[int(y // CELL), int(x // CELL)] for x, y in inner if 0 <= x < WIDTH and 0 <= y < HEIGHT]
    assert len(values) > 5
    assert np.mean(values) == pytest.approx(3.0, rel=0.1)
    outside = camera.at(np.array([(0.0, 26.0)]), HEAD_METRES)[0]
    if 0 <= outside[1] < HEIGHT:
        assert density[int(outside[1] // CELL), int(outside[0] // CELL)] == 0
    assert np.nanmax(density) < 6  # a single cell would show many times more


def test_a_camera_that_looks_straight_down_is_measured_on_the_ground_and_says_so() -> None:
    ground = Ground(points=[(100, 100), (1100, 100), (1100, 600), (100, 600)], rectangle=(20.0, 10.0))
    found = GroundPlane.of(ground, "pixels", WIDTH, HEIGHT)
    assert not found.corrected
    assert found.area(np.array([(100, 100), (1100, 100), (1100, 600), (100, 600)], float)) == pytest.approx(200)


def test_fractions_and_pixels_give_the_same_areas() -> None:
    camera = PinholeCamera()
    points = camera.at(RECTANGLE, 0.0)
    shares = Ground(points=[tuple(one) for one in points / (WIDTH, HEIGHT)], rectangle=(12.0, 12.0))
    zone = np.array([(300.0, 300.0), (900.0, 300.0), (900.0, 600.0)])
    assert GroundPlane.of(shares, "fractions", WIDTH, HEIGHT).area(zone) == pytest.approx(plane(camera).area(zone))


@given(seed=st.integers(0, 10_000), height=st.floats(3, 30), tilt=st.floats(15, 70), pan=st.floats(-180, 180))
def test_areas_do_not_depend_on_how_the_ground_is_numbered(seed: int, height: float, tilt: float, pan: float) -> None:
    """The ground's own axes may point anywhere, and may be mirrored."""
    camera = PinholeCamera(height, tilt)
    distance = height / np.tan(np.radians(tilt))
    square = np.array([(-3.0, -3.0), (3.0, -3.0), (3.0, 3.0), (-3.0, 3.0)])
    square += np.array([0.0, max(distance, 5.0)])
    angle = np.radians(pan)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    if seed % 2:
        turn = turn @ np.diag([1.0, -1.0])
    points = camera.at(square, 0.0)
    moved = square @ turn.T + (seed % 7, 3)
    ground = Ground(points=[tuple(one) for one in points], metres=[tuple(one) for one in moved])
    found = GroundPlane.of(ground, "pixels", WIDTH, HEIGHT)
    if found.corrected:
        assert found.area(camera.at(square, HEAD_METRES)) == pytest.approx(36, rel=0.02)
    else:
        assert found.area(points) == pytest.approx(36, rel=0.02)


def test_a_zone_that_reaches_the_horizon_has_no_area() -> None:
    assert plane(PinholeCamera()).area(np.array([(0.0, -2000.0), (1280.0, -2000.0), (640.0, 700.0)])) is None


@pytest.mark.parametrize(
    ("points", "metres", "text"),
    [
        ([(0, 0), (1, 1), (2, 2), (0, 5)], [(0, 0), (1, 0), (1, 1), (0, 1)], "image points lie"),
        ([(0, 0), (0, 0), (2, 2), (0, 5)], [(0, 0), (1, 0), (1, 1), (0, 1)], "image points lie"),
        ([(0, 0), (9, 0), (9, 9), (0, 9)], [(0, 0), (1, 0), (2, 0), (0, 1)], "metres lie"),
        ([(0, 0), (9, 0), (9, 9), (0, 9)], [(0, 0), (1, 1), (1, 0), (0, 1)], "same order"),
    ],
)
def test_degenerate_points_are_refused(
    points: list[tuple[float, float]], metres: list[tuple[float, float]], text: str
) -> None:
    with pytest.raises(GroundError, match=text):
        Ground(points=points, metres=metres)


def test_either_metres_or_a_rectangle_is_needed() -> None:
    points = [(0, 0), (9, 0), (9, 9), (0, 9)]
    with pytest.raises(GroundError, match="either metres"):
        Ground(points=points)
    with pytest.raises(GroundError, match="between 0 and 10000"):
        Ground(points=points, rectangle=(0, 3))


def test_a_camera_at_head_height_is_refused() -> None:
    with pytest.raises(GroundError, match="well above the heads"):
        plane(PinholeCamera(height=1.7, tilt=10), RECTANGLE)


def test_the_levels_have_names() -> None:
    assert [level(density) for density in (0, 0.43, 1.9, 2, 3.57, 6, 7.1)] == [
        "free",
        "walking",
        "walking",
        "slowed",
        "contact",
        "dangerous",
        "critical",
    ]
