"""The same photograph has the same count in every engine, within the limit of its precision."""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean

import pytest
from support.engines import need_engine

from uepnet.model.artifact import Precision
from uepnet.model.counter import Counter
from uepnet.model.runtime import BUNDLED, LIMITS

PHOTOGRAPHS = ("IMG_120.jpg", "IMG_210.jpg", "IMG_30.jpg")  # crowds of different density


@pytest.fixture(params=["fp32", "int8"])
def precision(request: pytest.FixtureRequest) -> Iterator[Precision]:
    need_engine("openvino")
    if not (BUNDLED / "artifact.json").exists():
        pytest.skip("the bundled model is not in this checkout")
    yield request.param


@pytest.mark.data
def test_photographs_have_the_same_count_in_both_engines(
    real_data: Callable[[str], Path], precision: Precision
) -> None:
    folder = real_data("ShanghaiTech/part_A_final/train_data/images")
    one, other = (
        Counter(device="cpu", precision=precision, engine=engine, threads=1) for engine in ("onnxruntime", "openvino")
    )
    apart = []
    for name in PHOTOGRAPHS:
        expected = one.count(folder / name).count
        assert expected > 10
        apart.append(abs(other.count(folder / name).count - expected) / expected)
    assert mean(apart) <= min(LIMITS[precision], 0.01)
