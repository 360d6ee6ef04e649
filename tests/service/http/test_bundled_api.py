"""Every output with the model that ships: it counts at a size of its own, where a toy model counts pixel by pixel."""

import io
import json
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http as triton
from PIL import Image
from support.scenes import amid_nobody
from support.servers import Running, encoded, grey, running

from uepnet import Counter
from uepnet.model.runtime import BUNDLED
from uepnet.service.schemas import CountAnswer
from uepnet.service.settings import Settings

WIDTH, HEIGHT = 1001, 743  # whole cells at no size
ROWS, COLUMNS = 93, 126
LEFT = [[0, 0], [400, 0], [400, HEIGHT], [0, HEIGHT]]
RIGHT = [[400, 0], [WIDTH, 0], [WIDTH, HEIGHT], [400, HEIGHT]]
ZONES = {"zones": [{"name": "left", "polygon": LEFT}, {"name": "right", "polygon": RIGHT}]}

if not (BUNDLED / "artifact.json").exists():
    pytest.skip("no model is bundled yet", allow_module_level=True)


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running(Settings(port=0, model=BUNDLED)) as server:
        yield server


@pytest.fixture(scope="module")
def photo() -> bytes:
    return encoded(amid_nobody(WIDTH, HEIGHT))


@pytest.fixture(scope="module")
def count(photo: bytes) -> float:
    counted = Counter(device="cpu").count(photo).count
    assert counted > 50
    return counted


def test_json_counts_as_in_process_with_a_range(service: Running, photo: bytes, count: float) -> None:
    answer = CountAnswer.model_validate_json(service.count(photo).content)
    assert answer.count == count
    assert answer.range is not None and answer.range.low < count < answer.range.high
    assert (answer.width, answer.height) == (WIDTH, HEIGHT)


def test_the_map_has_the_image_s_cells_and_none_below_zero(service: Running, photo: bytes, count: float) -> None:
    answer = CountAnswer.model_validate_json(service.count(photo, params={"include": "map"}).content)
    assert answer.map is not None
    cells = answer.map.array()
    assert cells.shape == (ROWS, COLUMNS)
    assert cells.min() == 0
    assert cells.sum(dtype=np.float64) == pytest.approx(count, rel=1e-5)


def test_zones_that_share_the_image_share_the_count(service: Running, photo: bytes, count: float) -> None:
    files = {"image": ("x.png", photo), "zones": (None, json.dumps(ZONES))}
    answer = CountAnswer.model_validate_json(service.http.post("/v1/count", files=files).content)
    left, right = (zone.count for zone in answer.zones)
    assert min(left, right) > 0.1 * count
    assert left + right == pytest.approx(count, rel=1e-5)


@pytest.mark.parametrize(("kind", "shape"), [("count", (ROWS, COLUMNS)), ("density", (HEIGHT, WIDTH))])
def test_arrays_hold_the_count(service: Running, photo: bytes, count: float, kind: str, shape: tuple[int, int]) -> None:
    response = service.count(photo, headers={"Accept": "application/x-npy"}, params={"map": kind})
    array = np.load(io.BytesIO(response.content))
    assert array.shape == shape
    assert array.min() == 0
    assert array.sum(dtype=np.float64) == pytest.approx(count, rel=1e-4)


@pytest.mark.parametrize("view", ["overlay", "heat"])
def test_pictures_are_warm_where_the_crowd_is(service: Running, photo: bytes, count: float, view: str) -> None:
    response = service.count(photo, headers={"Accept": "image/png"}, params={"view": view})
    picture = Image.open(io.BytesIO(response.content)).convert("RGB")
    assert picture.width == WIDTH
    pixels = np.asarray(picture, float)
    warmth = pixels[..., 0] - pixels[..., 2]  # more red than blue
    assert warmth[250:450, 300:500].mean() > warmth[600:740, 850:1000].mean() + 20
    assert float(response.headers["x-count"]) == count


def test_a_batch_and_tritons_client_count_alike(service: Running, photo: bytes, count: float) -> None:
    files = [("image", ("a.png", photo)), ("image", ("b.png", encoded(grey(64, 64))))]
    results = service.http.post("/v1/count/batch", files=files).json()["results"]
    assert [result["answer"]["count"] for result in results] == [count, 0]
    tensor = triton.InferInput("images", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([photo], object))
    outputs = triton.InferenceServerClient(f"127.0.0.1:{service.port}").infer("uepnet", [tensor])
    assert outputs.as_numpy("count")[0] == pytest.approx(count)
    assert outputs.as_numpy("count_map").shape == (1, ROWS, COLUMNS)
    assert outputs.as_numpy("count_map").sum() == pytest.approx(count, rel=1e-4)
