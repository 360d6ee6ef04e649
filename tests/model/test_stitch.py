from collections.abc import Iterator

import numpy as np
import pytest

from uepnet.model.decode import Maps
from uepnet.model.errors import InferenceError
from uepnet.model.stitch import stitch
from uepnet.model.tiling import Window, cells_shape, windows

SIZE = (300, 130)
PLACES = windows(*SIZE, tile=128, halo=16, cell=8)
SHAPE = cells_shape(*SIZE, 8)


def answer(window: Window, value: int) -> Maps:
    return Maps(
        classes=(np.full(window.shape, value, np.uint8), np.full(window.shape, value + 1, np.uint8)),
        counts=np.full(window.shape, value / 2, np.float32),
        variance=np.full(window.shape, value / 4, np.float32),
    )


def test_every_map_takes_each_cell_from_its_owner() -> None:
    whole = stitch(PLACES, (answer(window, index) for index, window in enumerate(PLACES)), SHAPE)
    expected = np.zeros(SHAPE)
    for index, window in enumerate(PLACES):
        expected[window.owned] = index
    assert len(PLACES) > 4
    assert np.array_equal(whole.classes[0], expected)
    assert np.array_equal(whole.classes[1], expected + 1)
    assert whole.counts is not None and np.array_equal(whole.counts, (expected / 2).astype(np.float32))
    assert whole.variance is not None and np.array_equal(whole.variance, (expected / 4).astype(np.float32))


def test_cells_of_the_padding_are_dropped() -> None:
    (window,) = windows(9, 17, tile=64, halo=0, cell=8)
    classes = np.arange(16, dtype=np.uint8).reshape(4, 4)
    whole = stitch([window], [Maps((classes,))], cells_shape(9, 17, 8))
    assert np.array_equal(whole.classes[0], classes[:3, :2])
    assert whole.counts is None and whole.variance is None


def test_answers_are_taken_one_by_one() -> None:
    taken: list[int] = []

    def answers() -> Iterator[Maps]:
        for index, window in enumerate(PLACES):
            assert len(taken) == index
            yield answer(window, index)
            taken.append(index)

    stitch(PLACES, answers(), SHAPE)
    assert len(taken) == len(PLACES)


def test_fewer_answers_than_tiles_is_an_error() -> None:
    with pytest.raises(InferenceError, match=rf"answered 1 of {len(PLACES)} tiles"):
        stitch(PLACES, [answer(PLACES[0], 1)], SHAPE)


def test_more_answers_than_tiles_is_an_error() -> None:
    answers = [answer(window, 1) for window in (*PLACES, PLACES[0])]
    with pytest.raises(InferenceError, match=f"more than the {len(PLACES)} tiles"):
        stitch(PLACES, answers, SHAPE)


def test_an_answer_of_the_wrong_size_is_an_error() -> None:
    wrong = Maps((np.zeros((2, 2), np.uint8),))
    with pytest.raises(InferenceError, match=r"\(2, 2\) cells"):
        stitch(PLACES, [wrong] * len(PLACES), SHAPE)
