import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from uepnet.model.intervals import classify, proxy_counts

positive = st.floats(1e-6, 1e3)


def test_a_count_on_a_border_belongs_to_the_right_interval() -> None:
    borders = (0.5, 1.0, 2.0)
    assert classify([0.0, 0.49, 0.5, 0.99, 1.0, 2.0, 99.0], borders).tolist() == [0, 0, 1, 1, 2, 3, 3]


@given(st.lists(positive, min_size=1, max_size=30, unique=True), st.lists(st.one_of(st.just(0.0), positive)))
def test_every_count_lies_in_its_interval_and_in_no_other(borders: list[float], counts: list[float]) -> None:
    edges = [-np.inf, *sorted(borders), np.inf]
    for count, index in zip(counts, classify(counts, sorted(borders)), strict=True):
        assert edges[index] <= count < edges[index + 1]


def test_classes_and_proxies_keep_the_shape_of_the_map() -> None:
    counts = np.array([[0.0, 0.7], [1.5, 8.0]], np.float32)
    classes = classify(counts, (0.5, 1.0))
    assert classes.dtype == np.uint8 and classes.tolist() == [[0, 1], [2, 2]]
    proxies = proxy_counts(classes, (0.0, 0.75, 3.0))
    assert proxies.dtype == np.float32 and proxies.tolist() == [[0.0, 0.75], [3.0, 3.0]]


@given(st.lists(positive, min_size=1, max_size=30, unique=True))
def test_a_proxy_inside_its_interval_is_classified_back(borders: list[float]) -> None:
    edges = np.array([0.0, *sorted(borders)])
    proxies = np.where(edges == 0, 0, edges)  # each interval's lower border, 0 for the background
    classes = np.arange(len(proxies), dtype=np.uint8)
    assert np.array_equal(classify(proxies, edges[1:]), classes)
