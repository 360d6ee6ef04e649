import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from uepnet.model.errors import ZoneError
from uepnet.model.tiling import cells_shape
from uepnet.model.zones import MAX_POINTS, MAX_ZONES, MIN_PIXELS, Zone, covered, load_zones, zone_counts

WIDTH, HEIGHT = 90, 45  # the last column of cells has 2 pixels, the last row 5


def random_counts(width: int, height: int, cell: int = 8) -> np.ndarray:
    return np.random.default_rng(width).gamma(0.5, 1.0, cells_shape(width, height, cell)).astype(np.float32)


def rectangle(left: float, top: float, right: float, bottom: float, name: str = "r") -> Zone:
    return Zone(name=name, polygon=((left, top), (right, top), (right, bottom), (left, bottom)))


def shares(low: float, high: float, length: int, cell: int) -> np.ndarray:
    """How much of each cell of one axis lies within [low, high]."""
    edges = np.minimum(np.arange(0, length + cell, cell), length)
    inside = np.minimum(edges[1:], high) - np.maximum(edges[:-1], low)
    return np.clip(inside, 0, None) / np.diff(edges)


@given(
    st.integers(1, 200), st.integers(1, 200), st.sampled_from([8, 16, 32]), st.lists(st.floats(-0.5, 1.5), min_size=4)
)
def test_a_rectangle_covers_each_cell_by_the_product_of_its_sides(
    width: int, height: int, cell: int, places: list[float]
) -> None:
    left, right = sorted(place * width for place in places[:2])
    top, bottom = sorted(place * height for place in places[2:4])
    inside = min(right, width) - max(left, 0), min(bottom, height) - max(top, 0)
    if min(inside) < 1e-3 or max(map(abs, (left, right, top, bottom))) <= MIN_PIXELS:
        return
    expected = np.outer(shares(top, bottom, height, cell), shares(left, right, width, cell))
    assert covered(rectangle(left, top, right, bottom), width, height, cell) == pytest.approx(expected, abs=1e-6)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[int, int, list[Zone]]:
    """A frame cut into triangles that meet in one point inside it."""
    width, height = draw(st.integers(4, 300)), draw(st.integers(4, 300))
    middle = draw(st.integers(3, width - 1)), draw(st.integers(3, height - 1))
    points = {(0, 0), (width, 0), (0, height), (width, height)}
    points |= {(x, y) for x in draw(st.sets(st.integers(0, width), max_size=6)) for y in (0, height)}
    points |= {(x, y) for y in draw(st.sets(st.integers(0, height), max_size=6)) for x in (0, width)}
    around = sorted(points, key=lambda point: math.atan2(point[1] - middle[1], point[0] - middle[0]))
    pairs = zip(around, around[1:] + around[:1], strict=True)
    zones = [Zone(name=str(index), polygon=(middle, *pair)) for index, pair in enumerate(pairs)]
    return width, height, zones


@given(partitions(), st.sampled_from([8, 16, 32]))
def test_the_counts_of_a_partition_of_the_frame_sum_to_the_count(
    partition: tuple[int, int, list[Zone]], cell: int
) -> None:
    width, height, zones = partition
    counts = random_counts(width, height, cell)
    total = sum(zone.count for zone in zone_counts(counts, zones, width, height, cell))
    assert total == pytest.approx(float(counts.sum(dtype=np.float64)), rel=1e-6)
    assert sum(covered(zone, width, height, cell) for zone in zones) == pytest.approx(1.0)


def test_a_slanted_edge_cuts_cells_by_their_exact_area() -> None:
    half = Zone(name="half", polygon=((0, 0), (16, 0), (0, 16)))
    assert covered(half, 16, 16, 8).tolist() == [[1.0, 0.5], [0.5, 0.0]]


def test_a_concave_zone_covers_what_lies_inside_it() -> None:
    """A C around the middle: sampled on a fine grid."""
    corners = ((5, 3), (80, 6), (78, 15), (30, 14), (28, 30), (85, 33), (80, 43), (4, 41))
    zone = Zone(name="c", polygon=corners)
    fine = 16
    picture = Image.new("L", (96 * fine, 48 * fine))
    ImageDraw.Draw(picture).polygon([(x * fine, y * fine) for x, y in corners], fill=1)
    sampled = np.asarray(picture).reshape(6, 8 * fine, 12, 8 * fine).sum(axis=(1, 3)) / fine**2
    sampled /= np.outer([8, 8, 8, 8, 8, 5], [8] * 11 + [2])
    assert covered(zone, WIDTH, HEIGHT, 8) == pytest.approx(sampled, abs=0.03)


def test_the_direction_of_the_corners_does_not_matter() -> None:
    corners = ((5.5, 3), (80, 6), (50, 40))
    there, back = Zone(name="a", polygon=corners), Zone(name="a", polygon=corners[::-1])
    assert covered(there, WIDTH, HEIGHT, 8) == pytest.approx(covered(back, WIDTH, HEIGHT, 8))


def test_fractions_and_pixels_mean_the_same_zone() -> None:
    pixels = Zone(name="a", polygon=((9, 9), (81, 9), (45, 36)))
    fractions = Zone(name="a", units="fractions", polygon=((0.1, 0.2), (0.9, 0.2), (0.5, 0.8)))
    assert covered(pixels, WIDTH, HEIGHT, 8) == pytest.approx(covered(fractions, WIDTH, HEIGHT, 8))


def test_zones_may_overlap_and_keep_their_order() -> None:
    counts = random_counts(WIDTH, HEIGHT)
    zones = [rectangle(0, 0, WIDTH, HEIGHT, "all"), rectangle(0, 0, 8, 8, "first cell")]
    everything, first = zone_counts(counts, zones, WIDTH, HEIGHT, 8)
    assert (everything.name, first.name) == ("all", "first cell")
    assert everything.count == pytest.approx(float(counts.sum()), rel=1e-6)
    assert first.count == pytest.approx(float(counts[0, 0]), rel=1e-6)


def test_a_zone_past_the_frame_is_cut_at_its_edges() -> None:
    wide = covered(rectangle(-500, -500, 45, 500), WIDTH, HEIGHT, 8)
    assert wide == pytest.approx(covered(rectangle(0, 0, 45, HEIGHT), WIDTH, HEIGHT, 8))


def test_a_ring_that_repeats_its_first_corner_is_the_same_zone() -> None:
    ring = Zone(name="a", polygon=((0, 0), (9, 0), (9, 0), (9, 9), (0, 0)))
    plain = Zone(name="a", polygon=((0, 0), (9, 0), (9, 9)))
    assert len(ring.in_pixels(9, 9)) == 3
    assert np.array_equal(covered(ring, 9, 9, 8), covered(plain, 9, 9, 8))


@pytest.mark.parametrize(
    ("polygon", "complaint"),
    [
        ([], "at least 3 different points"),
        ([(0, 0), (9, 0)], "at least 3 different points"),
        ([(0, 0), (9, 0), (9, 0), (0, 0)], "at least 3 different points"),
        ([(0, 0), (5, 5), (9, 9)], "lie on one line"),
        ([(0, 0), (9, 9), (9, 0), (0, 9)], "crosses or touches itself"),
        ([(0, 0), (9, 0), (9, 9), (5, 0), (0, 9)], "crosses or touches itself"),
        ([(0, 0), (9, 0), (4, 4), (9, 9), (0, 9), (4, 4)], "crosses or touches itself"),
        ([(0, 0), (9, 0), (20, 0), (9, 0), (9, 9)], "crosses or touches itself"),
        ([(0, 0)] + [(x, 1 + x % 2) for x in range(MAX_POINTS)], f"at most {MAX_POINTS}"),
    ],
)
def test_a_wrong_polygon_is_a_sentence_that_names_the_zone(polygon: list[tuple[float, float]], complaint: str) -> None:
    with pytest.raises(ZoneError, match=f'^Zone "gate" .*{complaint}.*\\.$'):
        Zone(name="gate", polygon=tuple(polygon))


def test_a_zone_outside_the_frame_is_an_error() -> None:
    counts = random_counts(WIDTH, HEIGHT)
    for zone in (rectangle(100, 0, 120, 20), rectangle(0, -20, 20, 0), rectangle(WIDTH, 0, WIDTH + 5, 5)):
        with pytest.raises(ZoneError, match="outside the frame of 90 x 45 pixels"):
            zone_counts(counts, [zone], WIDTH, HEIGHT, 8)


def test_a_name_twice_and_too_many_zones_are_errors() -> None:
    counts = random_counts(WIDTH, HEIGHT)
    with pytest.raises(ZoneError, match='2 zones with the name "gate"'):
        zone_counts(counts, [rectangle(0, 0, 5, 5, "gate")] * 2, WIDTH, HEIGHT, 8)
    many = [rectangle(0, 0, 5, 5, str(index)) for index in range(MAX_ZONES + 1)]
    with pytest.raises(ZoneError, match=f"at most {MAX_ZONES}"):
        zone_counts(counts, many, WIDTH, HEIGHT, 8)
    never_looked_at = {"zones": ["no zone"] * (MAX_ZONES + 1)}
    with pytest.raises(ZoneError, match=f"at most {MAX_ZONES}"):
        load_zones(json.dumps(never_looked_at))


GATE = {"name": "gate", "units": "fractions", "polygon": [[0.1, 0.2], [0.5, 0.2], [0.3, 0.9]]}


def test_zones_load_from_text_and_from_a_file(tmp_path: Path) -> None:
    text = json.dumps({"zones": [GATE, {"name": "Bühne", "polygon": [[0, 0], [9, 0], [9, 9]]}]}, ensure_ascii=False)
    path = tmp_path / "zones.json"
    path.write_text(text, encoding="utf-8")
    zones = load_zones(text)
    assert zones == load_zones(path)
    assert [(zone.name, zone.units) for zone in zones] == [("gate", "fractions"), ("Bühne", "pixels")]
    assert zones[0].polygon == ((0.1, 0.2), (0.5, 0.2), (0.3, 0.9))


def test_no_zones_are_fine() -> None:
    assert load_zones('{"zones": []}') == ()
    assert zone_counts(random_counts(WIDTH, HEIGHT), (), WIDTH, HEIGHT, 8) == ()


def wrong(**fields: Any) -> str:
    return json.dumps({"zones": [GATE | fields]})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the start"),
        ('{"zones": [', "the start"),
        ("[]", "the start"),
        ("{}", "zones: it is missing"),
        ('{"zones": [], "zone": 1}', "zone: "),
        (wrong(name=""), "zones.0.name"),
        (wrong(name="x" * 65), "zones.0.name"),
        (wrong(units="metres"), "zones.0.units"),
        (wrong(colour="red"), "zones.0.colour"),
        (wrong(polygon=[[0, 0], [1, 0], [1]]), "zones.0.polygon.2"),
        (wrong(polygon=[[0, 0], [1, 0], [1, "left"]]), "zones.0.polygon.2.1"),
        (wrong(polygon=[[0, 0], [1, 0], [1, 1e300]]), "zones.0.polygon.2.1"),
        (wrong(polygon=[[0, 0], [1, 1], [1, 0], [0, 1]]), 'Zone "gate" crosses'),
        (json.dumps({"zones": [GATE, GATE]}), "2 zones with the name"),
    ],
)
def test_wrong_json_is_a_sentence_that_names_the_field(text: str, complaint: str) -> None:
    with pytest.raises(ZoneError) as caught:
        load_zones(text)
    assert complaint in str(caught.value)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ZoneError, match=r"cannot be read from .*none\.json"):
        load_zones(tmp_path / "none.json")


@pytest.mark.parametrize("units", [{}, {"units": "pixels"}])
@pytest.mark.parametrize("polygon", [[[0, 0], [1, 0], [1, 1]], [[0.1, 0.2], [1.2, 0.2], [0.5, 0.9]]])
def test_fractions_without_their_units_are_refused(units: dict[str, str], polygon: list[list[float]]) -> None:
    text = json.dumps({"zones": [{"name": "gate", "polygon": polygon, **units}]})
    with pytest.raises(ZoneError, match=r'"gate" is smaller than 2 x 2 pixels: .* add "units": "fractions"'):
        load_zones(text)


def test_percentages_are_refused() -> None:
    zone = {"name": "gate", "units": "fractions", "polygon": [[10, 20], [60, 20], [60, 90]]}
    with pytest.raises(ZoneError, match="has the fraction 10; fractions of the frame run from 0 to 1"):
        load_zones(json.dumps({"zones": [zone]}))


def test_a_zone_in_fractions_may_reach_past_the_frame() -> None:
    zone = {"name": "gate", "units": "fractions", "polygon": [[-0.5, -0.5], [1.5, -0.5], [1.5, 1.5], [-0.5, 1.5]]}
    assert covered(load_zones(json.dumps({"zones": [zone]}))[0], WIDTH, HEIGHT, 8) == pytest.approx(1.0)


@pytest.mark.parametrize("path", ["/dev/zero", "/tmp"])
def test_zones_come_from_files_alone(path: str) -> None:
    with pytest.raises(ZoneError, match="it is not a file"):
        load_zones(Path(path))


@pytest.mark.parametrize(
    "values",
    [
        {"name": "a", "polygon": "x"},
        {"name": None, "polygon": [(0, 0), (9, 0), (9, 9)]},
        {"name": "a", "polygon": [(0, 0), (9, 0), (9, 9)], "unit": "fractions"},
        {"name": "a", "polygon": [(0, 0), (float("nan"), 0), (9, 9)]},
        {},
    ],
)
def test_a_zone_of_wrong_values_is_one_sentence(values: dict[str, object]) -> None:
    with pytest.raises(ZoneError, match=r"^The zone is wrong at \w+.*\.$"):
        Zone(**values)


@pytest.mark.parametrize(
    ("source", "words"), [("zones.json", "pass it as a Path"), (None, "not NoneType"), ({}, "dict")]
)
def test_what_cannot_be_zones_says_what_would_be_right(source: object, words: str) -> None:
    with pytest.raises(ZoneError, match=words):
        load_zones(source)  # type: ignore[arg-type]
