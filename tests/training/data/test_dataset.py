import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support import releases
from support.releases import RELEASES

from uepnet.commands.shared.sources import DATASETS
from uepnet.model.errors import DataError, ImageError
from uepnet.training.data.annotations import nobody
from uepnet.training.data.dataset import READERS, SPLITS, Sample, left_out, load, parts, pictures, total_people
from uepnet.training.data.splits import PUBLISHED, held_back
from uepnet.training.data.targets import Kernel


def people(count: int) -> Sample:
    return Sample(f"{count}.jpg", Path(f"{count}.jpg"), lambda: np.zeros((count, 2)))


# What every data set has in common


@pytest.mark.parametrize("dataset", RELEASES)
def test_a_release_gives_its_images_in_order_with_their_points(dataset: str, tmp_path: Path) -> None:
    truth = RELEASES[dataset](tmp_path)
    for split, images in truth.items():
        samples = load(dataset, tmp_path, split)
        assert [sample.name for sample in samples] == list(images)
        for sample in samples:
            assert sample.points == pytest.approx(images[sample.name]), sample.name
            assert sample.size == releases.SIZE
            assert sample.load_image().shape == (releases.SIZE[1], releases.SIZE[0], 3)
    assert total_people(load(dataset, tmp_path)) == sum(len(points) for points in truth["train"].values())


@pytest.mark.parametrize("dataset", RELEASES)
def test_samples_travel_to_loader_processes(dataset: str, tmp_path: Path) -> None:
    RELEASES[dataset](tmp_path)
    samples = load(dataset, tmp_path)
    copies = pickle.loads(pickle.dumps(samples))
    assert [len(copy.points) for copy in copies] == [len(sample.points) for sample in samples]


@pytest.mark.parametrize("dataset", RELEASES)
def test_kernels_are_the_paper_s(dataset: str, tmp_path: Path) -> None:
    RELEASES[dataset](tmp_path)
    fixed = {"shanghaitech-b": Kernel(fixed=15.0), "worldexpo10": Kernel(fixed=5.0)}
    assert {sample.kernel for sample in load(dataset, tmp_path)} == {fixed.get(dataset, Kernel())}


@pytest.mark.parametrize("dataset", RELEASES)
def test_an_empty_folder_is_refused_in_one_sentence(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refusal:
        load(dataset, tmp_path)
    assert str(tmp_path) in str(refusal.value)
    assert str(refusal.value).endswith(".")


def test_every_data_set_of_the_command_line_has_a_reader_and_a_made_copy() -> None:
    assert list(DATASETS) == list(READERS) == list(RELEASES)


def test_wrong_names_are_refused_with_what_would_be_right(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="choose shanghaitech-a"):
        load("shanghai", tmp_path)
    with pytest.raises(DataError, match="choose train"):
        load("csv", tmp_path, "dev")
    with pytest.raises(DataError, match="does not exist"):
        load("csv", tmp_path / "nowhere")


# Splits


@given(st.lists(st.integers(0, 3000), max_size=120, unique=True))
def test_parts_do_not_depend_on_the_order_of_the_images(counts: list[int]) -> None:
    samples = [people(count) for count in counts]
    chosen = dict(zip(counts, parts(samples), strict=True))
    turned = dict(zip(counts[::-1], parts(samples[::-1]), strict=True))
    assert chosen == turned


@given(st.integers(16, 255))
def test_of_few_images_a_sixteenth_validates_and_an_eighth_calibrates(images: int) -> None:
    chosen = parts([people(count) for count in range(images)])
    assert abs(chosen.count("val") - images / 16) <= 1
    assert abs(chosen.count("calibration") - images / 8) <= 2
    assert "check" not in chosen


@given(st.integers(256, 800))
def test_of_many_images_a_sixteenth_each_validates_calibrates_and_checks(images: int) -> None:
    chosen = parts([people(count) for count in range(images)])
    for split in ("val", "calibration", "check"):
        assert abs(chosen.count(split) - images / 16) <= 1
    assert set(chosen) == {"fit", "val", "calibration", "check"}


def test_the_parts_of_train_are_disjoint_and_leave_nothing_over(tmp_path: Path) -> None:
    releases.table(tmp_path, images=40)
    named = {split: {sample.name for sample in load("csv", tmp_path, split)} for split in SPLITS[:4]}
    assert named["fit"] | named["val"] | named["calibration"] == named["train"]
    assert sum(len(names) for names in named.values()) == 2 * len(named["train"])


def test_a_release_s_own_val_is_used_and_train_keeps_the_images_it_would_have_cost(tmp_path: Path) -> None:
    releases.table(tmp_path, images=40)
    (tmp_path / "val.csv").write_text("image,x,y\n3.png,1,2\n")
    assert [sample.name for sample in load("csv", tmp_path, "val")] == ["3.png"]
    assert len(load("csv", tmp_path, "fit")) + len(load("csv", tmp_path, "calibration")) == 40


def test_too_few_images_to_hold_any_back_is_said(tmp_path: Path) -> None:
    releases.table(tmp_path, images=3)
    with pytest.raises(DataError, match="3 images to train on, too few to hold back any as val"):
        load("csv", tmp_path, "val")
    assert held_back("csv", tmp_path) == {"val": {}, "calibration": {}, "check": {}, "left_out": {}}


def test_photographs_of_the_test_split_are_never_trained_on(tmp_path: Path) -> None:
    releases.shanghaitech("A")(tmp_path)
    assert "IMG_2.jpg" in {sample.name for sample in load("shanghaitech-a", tmp_path, "train")}
    assert [sample.name for sample in load("shanghaitech-a", tmp_path, "fit")] == ["IMG_1.jpg", "IMG_10.jpg"]


def test_shanghaitech_s_splits_may_lie_under_either_name(tmp_path: Path) -> None:
    truth = releases.shanghaitech("A")(tmp_path)
    (tmp_path / "part_A").mkdir()
    (tmp_path / "part_A_final" / "test_data").rename(tmp_path / "part_A" / "test_data")
    assert [sample.name for sample in load("shanghaitech-a", tmp_path, "test")] == list(truth["test"])
    assert [sample.name for sample in load("shanghaitech-a", tmp_path, "train")] == list(truth["train"])


# Folds


@pytest.mark.parametrize("fold", [1, 2, 3, 4, 5])
def test_a_fold_tests_ten_images_and_trains_on_the_others(fold: int, tmp_path: Path) -> None:
    releases.ucf_cc_50(tmp_path)
    tested = [int(sample.image.stem) for sample in load("ucf-cc-50", tmp_path, "test", fold)]
    trained = [int(sample.image.stem) for sample in load("ucf-cc-50", tmp_path, "train", fold)]
    assert tested == list(range(10 * fold - 9, 10 * fold + 1))
    assert sorted(tested + trained) == list(range(1, 51))
    held = {sample.name for sample in load("ucf-cc-50", tmp_path, "val", fold)}
    assert held and not held & {f"{number}.jpg" for number in tested}


@pytest.mark.parametrize("fold", [0, 6, -1])
def test_a_fold_that_does_not_exist_is_refused(fold: int, tmp_path: Path) -> None:
    releases.ucf_cc_50(tmp_path)
    with pytest.raises(DataError, match="choose 1 to 5"):
        load("ucf-cc-50", tmp_path, "test", fold)


def test_folds_belong_to_data_sets_that_have_them(tmp_path: Path) -> None:
    releases.ucf_cc_50(tmp_path)
    with pytest.raises(DataError, match="choose a fold"):
        load("ucf-cc-50", tmp_path, "test")
    with pytest.raises(DataError, match="csv has no folds"):
        load("csv", tmp_path, "test", 1)


# Images


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_sample_s_size_is_that_of_its_upright_pixels(suffix: str, orientation: int, tmp_path: Path) -> None:
    path = releases.picture(tmp_path / f"turned.{suffix}", size=(40, 20), orientation=orientation)
    sample = Sample("turned", path, nobody)
    assert sample.size == ((40, 20) if orientation < 5 else (20, 40))
    assert sample.load_image().shape[:2] == sample.size[::-1]


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = releases.picture(tmp_path / "broken.jpg")
    broken.write_bytes(broken.read_bytes()[:700])
    with pytest.raises(ImageError, match=r"broken\.jpg.*truncated"):
        Sample("broken", broken, nobody).load_image()
    (tmp_path / "text.jpg").write_text("not an image")
    with pytest.raises(DataError, match=r"text\.jpg cannot be read"):
        _ = Sample("text", tmp_path / "text.jpg", nobody).size
    with pytest.raises(DataError, match="missing"):
        _ = Sample("gone", tmp_path / "gone.jpg", nobody).size


def test_pictures_of_a_folder_hold_nobody(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images"):
        pictures(tmp_path)
    releases.picture(tmp_path / "tree.png")
    assert [(sample.name, len(sample.points)) for sample in pictures(tmp_path)] == [("tree.png", 0)]


def test_outside_the_region_an_image_is_blurred_by_a_mean_of_eleven(tmp_path: Path) -> None:
    releases.worldexpo10(tmp_path)
    sample = load("worldexpo10", tmp_path, "test")[0]
    assert sample.scene == "104207"
    assert sample.region is not None
    region = sample.region()
    assert not region[:, :48].any() and region[:, 48:].all()
    plain = np.asarray(Image.open(sample.image).convert("RGB"))
    seen = sample.load_image()
    assert np.array_equal(seen[:, 48:], plain[:, 48:])
    assert seen[30, 20] == pytest.approx(plain[25:36, 15:26].mean(axis=(0, 1)), abs=1)


# The real images


@pytest.mark.data
@pytest.mark.parametrize(
    ("dataset", "images", "annotated", "not_used"),
    [
        ("shanghaitech-a", 300, 162_707, 6),
        ("shanghaitech-b", 400, 49_280, 5),
    ],
)
def test_shanghaitech_is_whole_and_held_back_as_published(
    dataset: str, images: int, annotated: int, not_used: int, real_data: Callable[[str], Path]
) -> None:
    root = real_data("ShanghaiTech")
    samples = load(dataset, root)
    assert (len(samples), total_people(samples)) == (images, annotated)
    published = json.loads(PUBLISHED.read_text())[dataset]
    assert held_back(dataset, root) == published
    assert [sample.name for sample in load(dataset, root, "val")] == list(published["val"])
    assert set(published["left_out"]) == left_out(dataset)
    assert len(load(dataset, root, "fit")) + sum(len(group) for group in published.values()) == images
    assert len(published["left_out"]) == not_used


@pytest.mark.data
def test_mall_frames_come_in_order_with_their_people(real_data: Callable[[str], Path]) -> None:
    root = real_data("mall")
    samples = load("mall", root)
    assert [sample.name for sample in samples] == [f"seq_{number:06}.jpg" for number in range(1, 301)]
    assert total_people(samples) == 7395
    assert {sample.size for sample in samples} == {(640, 480)}
    with pytest.raises(DataError, match="801-2000"):
        load("mall", root, "test")
