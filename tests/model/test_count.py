from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from support.scenes import spectra_of
from support.toy import WHITE_COUNT, ToyRun, toy_artifact, toy_model

from uepnet.model.artifact import Calibration, Head, Scales, Tiling
from uepnet.model.count import ScaleUse, Tile, count_image, look
from uepnet.model.counter import Counter
from uepnet.model.decode import Maps, regrid
from uepnet.model.errors import Cancelled, ImageError, InferenceError, ZoneError
from uepnet.model.passes import AS_GOOD, first_size
from uepnet.model.tiling import windows
from uepnet.model.zones import Zone

LEFT_HALF = Zone(name="left", units="fractions", polygon=((0, 0), (0.5, 0), (0.5, 1), (0, 1)))


def noise(width: int, height: int) -> NDArray[np.uint8]:
    return np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("decoding", ["argmax", "expectation", "regression"])
@pytest.mark.parametrize("size", [(1, 1), (7, 300), (256, 256), (257, 640), (1001, 403)])
def test_an_image_of_any_size_counts_the_sum_of_its_cells(decoding: str, size: tuple[int, int]) -> None:
    artifact = toy_artifact(decoding)  # type: ignore[arg-type]
    width, height = size
    count = count_image(np.full((height, width, 3), 255, np.uint8), artifact, ToyRun(artifact))
    rows, columns = -(-height // 8), -(-width // 8)
    assert count.count_map.shape == (rows, columns) and count.count_map.dtype == np.float32
    assert (count.width, count.height, count.cell) == (width, height, 8)
    assert count.count == pytest.approx(float(count.count_map.sum()), rel=1e-5)
    inside = count.count_map[: height // 8, : width // 8]
    expected = (4.0 + 4.5) / 2 if decoding == "argmax" else WHITE_COUNT
    assert inside == pytest.approx(expected)


def test_tiles_have_one_shape_and_no_more_than_the_tile() -> None:
    artifact = toy_artifact(tiling=Tiling(tile=256, halo=32))
    runner = ToyRun(artifact)
    count_image(noise(700, 300), artifact, runner)
    assert len(set(runner.shapes)) == 1 and len(runner.shapes) == 4 * 2
    assert runner.shapes[0][0] <= 256 and runner.shapes[0][1] <= 256


def test_tiles_are_cut_only_when_they_are_asked_for() -> None:
    artifact = toy_artifact()
    image = np.zeros((256, 1000, 3), np.uint8)

    def brighten_as_it_goes(tiles: Iterator[Tile]) -> Iterator[Maps]:
        for tile in tiles:
            image[:] = 255  # seen by all tiles but the first, if they are views cut later
            yield Maps((np.full((32, tile.shape[1] // 8), tile[0, 0, 0] // 255, np.uint8),) * 2)

    classes = count_image(image, artifact, brighten_as_it_goes).count_map
    assert classes[:, -1].min() > 0


def test_cells_of_the_padding_do_not_count() -> None:
    artifact = toy_artifact("expectation")
    count = count_image(np.zeros((8, 8, 3), np.uint8), artifact, ToyRun(artifact))
    assert count.count == 0


def test_mirroring_averages_out_a_network_that_leans_to_one_side() -> None:
    artifact = toy_artifact("regression", mirror=True)

    def lean(tiles: Iterator[Tile]) -> Iterator[Maps]:
        for tile in tiles:
            columns = tile.shape[1] // 8
            ramp = np.arange(columns, dtype=np.float32) / (columns - 1)
            yield Maps((), np.tile(ramp, (tile.shape[0] // 8, 1)))

    count = count_image(noise(600, 90), artifact, lean)
    assert count.count_map == pytest.approx(0.5)


@pytest.mark.parametrize("width", [255, 601])
def test_mirrored_cells_come_back_to_their_place(width: int) -> None:
    plain, mirrored = toy_artifact("expectation"), toy_artifact("expectation", mirror=True)
    image = noise(width, 100)
    expected = count_image(image, plain, ToyRun(plain)).count_map
    runner = ToyRun(mirrored)
    assert count_image(image, mirrored, runner).count_map == pytest.approx(expected, abs=1e-5)
    assert len(runner.shapes) == 2 * (1 if width <= 256 else 3)


@pytest.mark.parametrize("scale", [0.5, 0.75, 1.5])
def test_a_scaled_image_keeps_its_cells_and_zones_in_the_original_frame(scale: float) -> None:
    artifact = toy_artifact("expectation", scale=scale)
    image = np.zeros((192, 320, 3), np.uint8)
    image[:, :160] = 255
    count = count_image(image, artifact, ToyRun(artifact), [LEFT_HALF])
    assert count.count_map.shape == (24, 40) and (count.width, count.height) == (320, 192)
    # The network counts five people in each of its own cells: scale ** 2 times as many as the image has.
    assert count.count == pytest.approx(scale**2 * 24 * 20 * WHITE_COUNT, rel=0.01)
    assert count.zones[0].count == pytest.approx(count.count, rel=0.02)
    assert count.count_map[:, :19] == pytest.approx(scale**2 * WHITE_COUNT, rel=0.05)
    assert count.count_map[:, 21:] == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("scale", [0.31, 0.77, 1.63])
def test_at_an_odd_scale_nobody_is_lost(scale: float) -> None:
    artifact = toy_artifact("expectation", scale=scale)
    frame = Zone(name="all", units="fractions", polygon=((0, 0), (1, 0), (1, 1), (0, 1)))
    count = count_image(noise(333, 101), artifact, ToyRun(artifact), [frame])
    assert count.count_map.shape == (13, 42)
    assert count.count > 0 and count.zones[0].count == pytest.approx(count.count, rel=1e-6)


def test_a_scale_that_leaves_less_than_a_pixel_still_counts() -> None:
    artifact = toy_artifact("expectation", scale=0.1)
    assert count_image(noise(1, 3), artifact, ToyRun(artifact)).count_map.shape == (1, 1)


def test_a_range_surrounds_the_count_where_there_is_a_calibration() -> None:
    calibration = Calibration(level=0.9, low=-0.2, high=0.1, offset=1.0, power=1.0, images=50)
    artifact = toy_artifact("expectation", calibration=calibration)
    count = count_image(noise(100, 100), artifact, ToyRun(artifact))
    assert count.range is not None and count.range.level == 0.9
    assert count.range.low == pytest.approx(count.count - 0.2 * (count.count + 1))
    assert count.range.high == pytest.approx(count.count + 0.1 * (count.count + 1))
    plain = toy_artifact()
    assert count_image(noise(9, 9), plain, ToyRun(plain)).range is None


def classes_only(first: list[int], second: list[int]) -> Maps:
    padded = [np.zeros((4, 8), np.uint8) for _ in range(2)]
    padded[0][0, : len(first)], padded[1][0, : len(second)] = first, second
    return Maps(tuple(padded))


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [
        ([1, 2, 3, 3], [1, 2, 3, 4], 0.0),
        ([4, 2, 3, 3], [1, 2, 3, 4], 0.25),  # the top class of head 0 is 4
        ([3, 2, 3, 3], [5, 2, 3, 4], 0.25),  # of head 1 it is 5
        ([4, 4, 0, 0], [5, 5, 5, 0], 1.0),  # a cell that head 0 calls empty is not occupied
        ([0, 0, 0, 0], [0, 0, 0, 0], 0.0),
    ],
)
def test_saturation_is_the_share_of_occupied_cells_in_a_top_class(
    first: list[int], second: list[int], share: float
) -> None:
    maps = classes_only(first, second)
    count = count_image(np.zeros((32, 64, 3), np.uint8), toy_artifact(), lambda tiles: (maps for _ in tiles))
    assert count.saturated == share
    assert bool(count.warnings) == (share > 0.05)
    for warning in count.warnings:
        assert f"{share:.0%} of the occupied cells" in warning and warning.endswith(".")


def test_a_top_class_that_hardly_any_cell_fell_into_is_not_the_densest() -> None:
    head = Head(borders=(0.1, 1.0, 3.0), proxies=(0, 0.5, 2, 3.5))
    assert head.densest_class(t_max=6.0) == 3
    assert head.densest_class(t_max=4.0) == 2
    assert Head(borders=(0.1,), proxies=(0, 0.5)).densest_class(t_max=0.5) == 1


def test_five_per_cent_are_not_yet_a_warning() -> None:
    first = np.full((5, 8), 1, np.uint8)
    first[0, :2] = 4  # 2 of 40
    maps = Maps((np.pad(first, ((0, 3), (0, 0))), np.ones((8, 8), np.uint8)))
    count = count_image(np.zeros((40, 64, 3), np.uint8), toy_artifact(), lambda tiles: (maps for _ in tiles))
    assert count.saturated == 0.05 and count.warnings == ()


def test_zones_are_counted_in_their_order() -> None:
    artifact = toy_artifact("expectation")
    image = noise(160, 80)
    everything = Zone(name="all", polygon=((0, 0), (160, 0), (160, 80), (0, 80)))
    count = count_image(image, artifact, ToyRun(artifact), [LEFT_HALF, everything])
    assert [zone.name for zone in count.zones] == ["left", "all"]
    assert count.zones[1].count == pytest.approx(count.count, rel=1e-6)
    assert count.zones[0].count == pytest.approx(float(count.count_map[:, :10].sum()), rel=1e-5)


def test_a_wrong_zone_is_found_before_anything_is_counted() -> None:
    outside = Zone(name="out", polygon=((500, 0), (600, 0), (600, 80)))
    runner = ToyRun(toy_artifact())
    with pytest.raises(ZoneError, match="outside the frame"):
        count_image(noise(160, 80), toy_artifact(), runner, [outside])
    assert runner.shapes == []


def test_a_runner_that_loses_a_tile_is_an_error() -> None:
    with pytest.raises(InferenceError, match="answered 0 of 1 tiles"):
        count_image(noise(64, 64), toy_artifact(), lambda tiles: iter(()))


def test_a_counter_counts_paths_bytes_and_arrays_alike(tmp_path: Path) -> None:
    counter = Counter(toy_model(tmp_path / "model", "expectation"), device="cpu")
    image = noise(300, 90)
    path = tmp_path / "crowd.png"
    Image.fromarray(image).save(path)
    counts = [counter.count(source) for source in (str(path), path, path.read_bytes(), image)]
    expected = count_image(image, counter.artifact, ToyRun(counter.artifact))
    for count in counts:
        assert count.count_map == pytest.approx(expected.count_map, abs=1e-4)
    assert counter.count(image, [LEFT_HALF]).zones[0].name == "left"


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)],
)
def test_an_array_of_another_kind_is_refused(array: NDArray[np.uint8], tmp_path: Path) -> None:
    counter = Counter(toy_model(tmp_path), device="cpu")
    with pytest.raises(ImageError, match=r"must be uint8 \[height, width, 3\], not "):
        counter.count(array)


CHOSEN = Scales(first_side=128, block=16, halo=32, crowded=0.5, beside=0.3, least_people=0.1, empty_until=0.0)


def crowd_in_a_corner(width: int, height: int) -> NDArray[np.uint8]:
    image = np.zeros((height, width, 3), np.uint8)
    image[: height // 4, : width // 4] = 255
    return image


@pytest.fixture(scope="module")
def sharp() -> Iterator[None]:
    """Drawn areas of one colour have no detail, and the passes would end early; their edges would be seams: these tests
    are about the passes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uepnet.model.count.spectra", lambda image, centres: spectra_of([1.0] * len(centres)))
        patch.setattr("uepnet.model.count.seamless", lambda image, cell: [(0, 0, image.shape[1], image.shape[0])])
        yield


@pytest.mark.usefixtures("sharp")
def test_only_the_crowded_corner_is_counted_at_the_finest_scale() -> None:
    artifact = toy_artifact("expectation", scales=CHOSEN)
    runner = ToyRun(artifact)
    count = count_image(crowd_in_a_corner(512, 512), artifact, runner)
    assert [use.scale for use in count.scales] == [0.25, 0.5, 1.0, 2.0]
    assert sum(use.share for use in count.scales) == pytest.approx(1)
    assert count.scale_map is not None and count.scale_map.shape == count.count_map.shape
    assert count.scale_map[0, 0] == 3 and count.scale_map[-1, -1] == 0
    pixels = sum(height * width for height, width, _ in runner.shapes)
    assert pixels < 0.4 * sum((512 * use.scale) ** 2 for use in count.scales)
    # The toy counts five people in every white cell of any size: four times as many at twice the scale.
    assert count.count_map[1:12, 1:12] == pytest.approx(4 * WHITE_COUNT, rel=0.05)
    assert count.count_map[24:, 24:].max() == 0


@pytest.mark.usefixtures("sharp")
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_each_cell_is_what_its_pass_alone_would_count(width: int, height: int, seed: int) -> None:
    """Nobody is lost or counted twice between passes: a cell's people are those of one pass over the whole image."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (rng.integers(1, 6), rng.integers(1, 6), 3), dtype=np.uint8)
    image = np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.NEAREST))
    artifact = toy_artifact("expectation", scales=CHOSEN.model_copy(update={"crowded": 2.0, "beside": 1.5}))
    count = count_image(image, artifact, ToyRun(artifact))
    assert count.scale_map is not None and count.scale_map.max() < len(count.scales)
    assert count.count == pytest.approx(float(count.count_map.sum(dtype=np.float64)))
    size = first_size(width, height, CHOSEN)
    for index in range(len(count.scales)):
        alone = look(image, size, windows(*size, 256, 32, 8), artifact, ToyRun(artifact)).counts
        whole = regrid(alone, (width, height), size, 8)
        own = count.scale_map == index
        assert count.count_map[own] == pytest.approx(whole[own], rel=0.02, abs=0.15)
        larger = min(CHOSEN.step * size[0] / width, CHOSEN.finest)
        near = abs(larger - 1) < AS_GOOD
        size = (width, height) if near else (max(1, round(width * larger)), max(1, round(height * larger)))
    again = count_image(image, artifact, ToyRun(artifact))
    assert np.array_equal(again.count_map, count.count_map)


def test_without_scales_the_answer_names_the_fixed_one() -> None:
    artifact = toy_artifact("expectation", scale=1.5)
    count = count_image(noise(100, 80), artifact, ToyRun(artifact))
    assert count.scales == (ScaleUse(1.5, 1.0),)
    assert count.scale_map is not None and not count.scale_map.any()


@pytest.mark.usefixtures("sharp")
def test_every_pass_runs_through_the_runner_it_was_given() -> None:
    """So passes share a request's deadline and cancellation: the pass that meets it ends the count."""
    artifact = toy_artifact("expectation", scales=CHOSEN)
    runner, calls = ToyRun(artifact), []

    def cancelled_later(tiles: Iterator[Tile]) -> Iterator[Maps]:
        calls.append(1)
        if len(calls) == 2:
            raise Cancelled("Nobody waits.")
        return runner(tiles)

    with pytest.raises(Cancelled):
        count_image(crowd_in_a_corner(512, 512), artifact, cancelled_later)
    assert len(calls) == 2
