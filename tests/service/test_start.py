"""How long the service takes from its start to ready."""

import pytest
from support.engines import need_engine

from uepnet.bench.processes import usage
from uepnet.bench.served import service_process
from uepnet.model.runtime import BUNDLED

MOST_SECONDS = 5.0  # on an idle core; CPU seconds, because a busy machine would say nothing about the service


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_the_service_is_ready_within_five_seconds_of_one_core(engine: str) -> None:
    need_engine(engine)
    if not (BUNDLED / "artifact.json").exists():
        pytest.skip("the bundled model is not in this checkout")
    with service_process(None, engine=engine, device="cpu", threads=1, history="off") as (_, pid):
        assert usage(pid).cpu_seconds < MOST_SECONDS
