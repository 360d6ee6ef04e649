"""An image that is made of several pictures counts what they count alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.toy import ToyRun, toy_artifact

from uepnet.model.artifact import Scales
from uepnet.model.count import count_image
from uepnet.model.seams import seamless

CHOSEN = Scales(first_side=128, block=16, halo=32, crowded=2.0, beside=1.5, least_people=0.1, empty_until=0.0)


def collage(rng: np.random.Generator, rows: int, columns: int, height: int, width: int) -> NDArray[np.uint8]:
    """Pictures side by side, each with noise around a brightness of its own."""
    grey = rng.permutation(np.linspace(30, 220, rows * columns)).reshape(rows, columns)
    image = grey.repeat(height, 0).repeat(width, 1)[:, :, None] + rng.uniform(
        -3, 3, (rows * height, columns * width, 3)
    )
    return image.astype(np.uint8)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(130, 220), st.integers(130, 220), st.integers(0, 2**32 - 1))
def test_a_picture_made_of_pictures_counts_the_sum_of_its_parts(
    rows: int, columns: int, height: int, width: int, seed: int
) -> None:
    image = collage(np.random.default_rng(seed), rows, columns, height, width)
    artifact = toy_artifact("expectation", scales=CHOSEN)
    count = count_image(image, artifact, ToyRun(artifact))
    boxes = seamless(image, artifact.cell)
    assert len(boxes) == rows * columns
    alone = [count_image(image[y : y + h, x : x + w], artifact, ToyRun(artifact)) for x, y, w, h in boxes]
    assert count.count == pytest.approx(sum(part.count for part in alone))
    for (x, y, _, _), part in zip(boxes, alone, strict=True):
        place = slice(y // 8, y // 8 + len(part.count_map)), slice(x // 8, x // 8 + part.count_map.shape[1])
        assert np.array_equal(count.count_map[place], part.count_map)
        assert count.scale_map is not None and part.scale_map is not None
        scales = np.array([use.scale for use in count.scales])[count.scale_map[place]]
        own = np.array([use.scale for use in part.scales])[part.scale_map]
        assert scales == pytest.approx(own, rel=0.05)
    assert sum(use.share for use in count.scales) == pytest.approx(1)
    assert [use.scale for use in count.scales] == sorted({use.scale for use in count.scales})
    saturated = [part.saturated for part in alone]
    assert min(saturated) - 1e-9 <= count.saturated <= max(saturated) + 1e-9


def test_at_a_fixed_scale_a_picture_is_never_divided() -> None:
    """The paper's protocol: one pass over the whole image."""
    artifact = toy_artifact("expectation")
    runner = ToyRun(artifact)
    image = collage(np.random.default_rng(0), 1, 2, 100, 128)
    assert len(seamless(image, 8)) == 1 and len(seamless(np.tile(image, (2, 1, 1)), 8)) == 2
    count_image(np.tile(image, (2, 1, 1)), artifact, runner)
    assert runner.shapes == [(224, 256, 3)]
