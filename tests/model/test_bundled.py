"""The model that ships: it is whole, it counts, it is small, and it sees nobody where nobody is."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.paths import ROOT
from support.scenes import crowd

from uepnet import Counter
from uepnet.model.artifact import Artifact, Tiling
from uepnet.model.count import count_image
from uepnet.model.runtime import BUNDLED, LIMITS
from uepnet.training.data import dataset
from uepnet.training.data.synthetic import KINDS

GOLDEN = Path(__file__).parent / "golden.json"

if not (BUNDLED / "artifact.json").exists():
    pytest.skip("no model is bundled yet", allow_module_level=True)


@pytest.fixture(scope="module")
def counter() -> Counter:
    return Counter(device="cpu")


def golden_scene() -> np.ndarray:
    return np.asarray(crowd(2021)[0])


def test_a_generated_scene_keeps_its_golden_count() -> None:
    golden = json.loads(GOLDEN.read_text())
    counter = Counter(device="cpu", precision="fp32")  # which precision `auto` is depends on the processor
    assert golden["model"] == counter.artifact.version and golden["count"] > 50
    assert counter.count(golden_scene()).count == pytest.approx(golden["count"], rel=0.01)


def test_without_its_scales_it_keeps_the_golden_count_of_the_fixed_scale() -> None:
    counter = Counter(device="cpu", precision="fp32")
    fixed = counter.artifact.model_copy(update={"scales": None})
    count = count_image(golden_scene(), fixed, counter.runtime.run_tiles)
    assert count.count == pytest.approx(json.loads(GOLDEN.read_text())["fixed"], rel=1e-4)
    assert [(use.scale, use.share) for use in count.scales] == [(fixed.scale, 1.0)]


@pytest.mark.data
@pytest.mark.parametrize("part", ["a", "b"])
def test_a_photograph_counts_the_same_at_two_and_four_times_its_size(
    counter: Counter, real_data: Callable[[str], Path], part: str
) -> None:
    samples = dataset.load(f"shanghaitech-{part}", real_data("ShanghaiTech"), "val")[:4]
    for sample in samples:
        image = Image.fromarray(sample.load_image())
        count = counter.count(np.asarray(image)).count
        for times in (2, 4):
            larger = image.resize((times * image.width, times * image.height), Image.Resampling.BICUBIC)
            assert counter.count(np.asarray(larger)).count == pytest.approx(count, rel=0.1)


def held_back(folder: Path, part: str, width: int, height: int) -> list[np.ndarray]:
    """Twelve photographs of a part that the model was not trained on, cut to a size."""
    samples = [one for split in ("val", "calibration", "check") for one in dataset.load(part, folder, split)]
    images = (sample.load_image() for sample in samples)
    large = (image[:height, :width] for image in images if image.shape[0] >= height and image.shape[1] >= width)
    return list(islice(large, 12))


def enlarged_middle(image: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    middle = Image.fromarray(image).crop((width // 4, height // 4, width * 3 // 4, height * 3 // 4))
    return np.asarray(middle.resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.data
@pytest.mark.parametrize(
    ("part", "size", "soft"), [("a", (900, 600), False), ("a", (900, 600), True), ("b", (1024, 768), False)]
)
def test_a_mosaic_counts_the_sum_of_its_photographs(
    counter: Counter, real_data: Callable[[str], Path], part: str, size: tuple[int, int], soft: bool
) -> None:
    """`soft`: every other photograph has half the detail of its neighbours."""
    photographs = held_back(real_data("ShanghaiTech"), f"shanghaitech-{part}", *size)
    if soft:
        photographs[1::2] = [enlarged_middle(photograph) for photograph in photographs[1::2]]
    rows = [np.concatenate(photographs[start : start + 4], 1) for start in (0, 4, 8)]
    parts = sum(counter.count(photograph).count for photograph in photographs)
    assert counter.count(np.concatenate(rows)).count == pytest.approx(parts, rel=0.03)


@pytest.mark.data
def test_a_crowd_in_a_corner_of_an_empty_50_megapixel_picture_is_found(
    counter: Counter, real_data: Callable[[str], Path]
) -> None:
    crowd = dataset.load("shanghaitech-a", real_data("ShanghaiTech"), "val")[0].load_image()
    sky = np.full((5700, 8700, 3), (150, 180, 220), np.uint8)
    sky[-crowd.shape[0] :, -crowd.shape[1] :] = crowd
    count = counter.count(sky)
    assert count.count == pytest.approx(counter.count(crowd).count, rel=0.05)
    assert sum(use.scale**2 * use.share for use in count.scales) < 0.1  # most of it was seen small
    assert count.count_map[:-110].sum() < 1


def test_it_is_small_and_every_file_is_within_its_limit() -> None:
    artifact = Artifact.load(BUNDLED)
    assert sum(path.stat().st_size for path in BUNDLED.iterdir()) < 30e6
    for precision, entry in artifact.files.items():
        assert entry.parity is not None and entry.parity.count_difference <= LIMITS[precision]


def test_every_precision_gives_the_same_count() -> None:
    counter = Counter(device="cpu", precision="fp32")
    reference = counter.count(golden_scene()).count
    for precision in counter.artifact.files:
        other = Counter(device="cpu", precision=precision).count(golden_scene()).count
        assert other == pytest.approx(reference, rel=2 * LIMITS[precision], abs=0.5)


def test_every_count_has_a_range_of_ninety_per_cent(counter: Counter) -> None:
    count = counter.count(golden_scene())
    assert count.range is not None and count.range.level == 0.9
    assert 0 <= count.range.low <= count.count <= count.range.high


def test_nobody_is_counted_on_drawn_scenes_without_people(counter: Counter) -> None:
    rng = np.random.default_rng(99)  # not the seed of any training tile
    counts = [counter.count(np.asarray(make(rng, 320, 256))).count for make in KINDS.values() for _ in range(4)]
    assert np.median(counts) < 0.5
    assert np.quantile(counts, 0.9) <= 1
    assert np.mean(counts) <= 2


@pytest.mark.data
def test_nobody_is_counted_on_photographs_without_people(counter: Counter, real_data: Callable[[str], Path]) -> None:
    folder = real_data("no-people")
    from uepnet.training.prepare import empties

    for held_back in (False, True):
        counts = np.array([counter.count(sample.image).count for sample in empties(str(folder), held_back)])
        assert np.median(counts) == 0
        assert np.quantile(counts, 0.9) <= 1
        assert counts.mean() <= 2


def test_it_loads_without_torch_and_within_seconds() -> None:
    code = "import sys, time; t = time.perf_counter(); from uepnet import Counter; Counter(device='cpu'); "
    code += "print(time.perf_counter() - t); assert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 30  # about 0.5 s on an idle machine


def test_the_wheel_contains_it(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
        "-w",
        str(tmp_path),
    ]
    subprocess.run([*command, str(ROOT)], check=True, timeout=200, capture_output=True)
    (wheel,) = tmp_path.glob("uepnet-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"uepnet/model/bundled/{path.name}" for path in BUNDLED.iterdir()} <= names
    assert {"uepnet/service/page/index.html", "uepnet/training/data/splits.json", "uepnet/commands/count.py"} <= names


@pytest.mark.data
def test_tiles_and_the_whole_image_agree_on_photographs(counter: Counter, real_data: Callable[[str], Path]) -> None:
    """Seams: four photographs side by side give the count of the whole, within half a per cent on average."""
    folder = real_data("ShanghaiTech")
    # At a fixed scale: where scales are chosen, the photographs would be counted one by one.
    artifact = counter.artifact.model_copy(update={"scales": None})
    whole = artifact.model_copy(update={"tiling": Tiling(tile=4096, halo=0)})
    photographs = [sample.load_image() for sample in dataset.load("shanghaitech-b", folder, "val")[:8]]
    errors = []
    for first in (0, 4):
        rows = [np.concatenate(photographs[index : index + 2], 1) for index in (first, first + 2)]
        image = np.concatenate(rows)
        exact = count_image(image, whole, counter.runtime.run_tiles).count
        errors.append(abs(count_image(image, artifact, counter.runtime.run_tiles).count - exact) / exact)
    assert np.mean(errors) < 0.005
