"""Maps of windows -> maps of the image: each window contributes the cells that it owns."""

from collections.abc import Iterable, Sequence

import numpy as np

from uepnet.model.decode import Maps
from uepnet.model.errors import InferenceError
from uepnet.model.tiling import Window


def stitch(windows: Sequence[Window], maps: Iterable[Maps], cells_shape: tuple[int, int]) -> Maps:
    """`answers` holds one item per window, in the order of the windows; cells_shape is (rows, columns) of the image.

    Answers are consumed one by one and released once copied, so that memory stays at that of one batch.
    """
    answers = iter(maps)
    whole: Maps | None = None
    for index, window in enumerate(windows):
        part = next(answers, None)
        if part is None:
            raise InferenceError(f"The device answered {index} of {len(windows)} tiles.")
        _check(part, window)
        whole = whole or _empty(part, cells_shape)
        for target, source in zip(_layers(whole), _layers(part), strict=True):
            target[window.owned] = source[window.inner]
    if next(answers, None) is not None:
        raise InferenceError(f"The device answered more than the {len(windows)} tiles it was given.")
    if whole is None:
        raise ValueError("an image has at least one window")
    return whole


def _layers(maps: Maps) -> list[np.ndarray]:
    """The existing maps, in a fixed order."""
    layers = (maps.counts, maps.variance, maps.familiarity)
    return [*maps.classes, *(layer for layer in layers if layer is not None)]


def _empty(like: Maps, shape: tuple[int, int]) -> Maps:
    return Maps(
        classes=tuple(np.zeros(shape, np.uint8) for _ in like.classes),
        counts=None if like.counts is None else np.zeros(shape, np.float32),
        variance=None if like.variance is None else np.zeros(shape, np.float32),
        familiarity=None if like.familiarity is None else np.zeros(shape, np.float32),
    )


def _check(part: Maps, window: Window) -> None:
    for layer in _layers(part):
        if layer.shape != window.shape:
            raise InferenceError(f"The device answered {layer.shape} cells for a tile of {window.shape}.")
