import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.engines import need_engine
from support.toy import toy_model


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_counting_leaves_no_trace_outside_and_no_identifier_of_the_machine(tmp_path: Path, engine: str) -> None:
    need_engine(engine)
    home = tmp_path / "home"
    home.mkdir()
    model = toy_model(tmp_path / "model")
    script = (
        f"from uepnet.model.runtime import Runtime; Runtime({str(model)!r}, device='cpu', engine={engine!r}).warm_up()"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    kept["HOME"] = str(home)
    done = subprocess.run([sys.executable, "-c", script], env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(home.rglob("*")) == []
