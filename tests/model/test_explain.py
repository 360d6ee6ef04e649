import numpy as np
import pytest

from uepnet.model.count import Count, ScaleUse
from uepnet.model.errors import InputError
from uepnet.model.explain import explain_scales


def counted(scale_map: np.ndarray | None) -> Count:
    return Count(
        count=8.0,
        range=None,
        count_map=np.full((3, 4), 8 / 12, np.float32),
        width=30,
        height=20,
        zones=(),
        saturated=0.0,
        warnings=(),
        cell=8,
        scales=(ScaleUse(0.5, 0.5), ScaleUse(1.0, 0.5)),
        scale_map=scale_map,
    )


def test_each_part_has_the_colour_of_its_pass() -> None:
    scale_map = np.zeros((3, 4), np.uint8)
    scale_map[:, 2:] = 1
    drawn = explain_scales(np.zeros((20, 30, 3), np.uint8), counted(scale_map))
    assert drawn.shape[0] > 20 and drawn.shape[1] >= 30
    left, right = drawn[:20, :16].reshape(-1, 3), drawn[:20, 16:30].reshape(-1, 3)
    assert (left == left[0]).all() and (right == right[0]).all()
    assert (left[0] != right[0]).any()


def test_a_count_from_a_server_cannot_be_explained() -> None:
    with pytest.raises(InputError, match="in this process"):
        explain_scales(np.zeros((20, 30, 3), np.uint8), counted(None))
