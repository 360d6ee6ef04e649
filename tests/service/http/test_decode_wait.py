"""Small files that take long to decode: refused where too many come at once, and others do not wait for them."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.bombs import arithmetic_scans
from support.servers import SOON, Running, encoded, eventually, grey

from uepnet.service.core.decoders import DecoderPool

BOMB = arithmetic_scans(7000, 7000, 64)  # 7 seconds are expected before the first one has been decoded
SMALL = encoded(grey(64, 64))


@pytest.fixture
def decoding(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Bombs take until this is set, and are then as large as SMALL."""
    go, decode = threading.Event(), DecoderPool.decode

    def held(pool: DecoderPool, content: bytes, check: Callable[[], None]) -> NDArray[np.uint8]:
        if content == BOMB:
            assert go.wait(SOON)
            return grey(64, 64)
        return decode(pool, content, check)

    monkeypatch.setattr(DecoderPool, "decode", held)
    return go


def test_bombs_beyond_the_wait_are_refused_and_small_images_pass_the_others(
    serve: Callable[..., Running], decoding: threading.Event
) -> None:
    server = serve(decode_threads=2, max_wait_seconds=20)
    answers: list[Any] = []
    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(lambda: answers.append(server.count(BOMB, "image/jpeg")))
        eventually(lambda: len(answers) == 5)  # the fourth would wait for three
        assert {answer.status_code for answer in answers} == {429}
        assert answers[0].json()["type"] == "urn:uepnet:problem:full"
        assert answers[0].headers["retry-after"] == "2"
        assert server.metric("uepnet_requests_in_flight") == 3
        assert server.count(SMALL).status_code == 200  # though three bombs came first
        decoding.set()
    assert Counter(answer.status_code for answer in answers) == {429: 5, 200: 3}
    assert server.metric("uepnet_rejected_total", reason="full") == 5


def test_a_bomb_alone_is_decoded_however_long_it_takes(
    serve: Callable[..., Running], decoding: threading.Event
) -> None:
    server = serve(decode_threads=1, max_wait_seconds=0.5)
    decoding.set()
    assert server.count(BOMB, "image/jpeg").status_code == 200
