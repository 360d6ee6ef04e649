import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.toy import toy_model

from uepnet.bench.processes import usage
from uepnet.cli import main


def test_servers_are_measured_in_turns_with_the_same_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("litserve")
    model, picture = toy_model(tmp_path / "toy"), tmp_path / "peers.png"
    command = ["bench", "peers", "--model", str(model), "--only", "uepnet", "litserve", "--clients", "2"]
    assert main([*command, "--seconds", "0.5", "--rounds", "2", "--json", "--plot", str(picture)]) == 0
    first, second = json.loads(capsys.readouterr().out)["rows"]
    assert (first["server"], second["server"]) == ("uepnet", "litserve")
    for row in (first, second):
        assert row["clients"] == 2 and row["answered"] > 0 and row["failed"] == 0
        assert row["p50_ms"] <= row["p99_ms"] and row["peak_mib"] > 30 and len(row["ratios"]) == 2
    assert first["first_over_this"] == 1
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_usage_includes_the_children_of_a_process() -> None:
    spend = (
        "import time\nuntil = time.process_time() + 0.5\nwhile time.process_time() < until: pass\nprint(flush=True)\n"
    )
    outer = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {spend + 'input()'!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert usage(process.pid).cpu_seconds >= 0.4
        process.stdin.write(b"\n")
        process.stdin.close()
    assert usage(os.getpid()).peak_mib > 10 and time.process_time() > 0
