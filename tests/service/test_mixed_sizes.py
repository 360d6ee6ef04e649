"""A service that counts images of many sizes stays as large as it is."""

from collections.abc import Callable

import numpy as np
import pytest
from support.engines import need_engine
from support.memory import resident_mib
from support.servers import Process, encoded

from uepnet.model.runtime import BUNDLED

IMAGES = 30  # in each half


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_images_of_mixed_sizes_do_not_make_a_service_grow(process: Callable[..., Process], engine: str) -> None:
    """What malloc, the decoders and OpenVINO's compiled shapes keep for the next image is bounded."""
    need_engine(engine)
    if not (BUNDLED / "artifact.json").exists():
        pytest.skip("the bundled model is not in this checkout")
    server = process(BUNDLED, engine=engine, device="cpu", threads=1)
    random = np.random.default_rng(0)

    def count_many() -> float:
        for _ in range(IMAGES):
            height, width = random.integers(64, 512, 2)
            image = encoded(random.integers(0, 256, (height, width, 3), dtype=np.uint8), "JPEG")
            server.http.post("/v1/count", content=image, headers={"Content-Type": "image/jpeg"}).raise_for_status()
        return resident_mib(server.popen.pid)

    early = count_many()
    late = count_many()
    assert late - early < 150
    assert late < 900  # with the process that decodes
