"""Several processes train one network, and end with all their threads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.scenes import release, starting_weights


def both(*command: str, timeout: int) -> str:
    """What two processes of the command print."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    result = subprocess.run(
        [*launcher, "--standalone", *command],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_two_processes_train_one_network(tmp_path: Path) -> None:
    release(tmp_path / "crowds", images=24)
    starting_weights(tmp_path / "start.safetensors")
    run = tmp_path / "run"
    line = f"-m uepnet train --dataset shanghaitech-a --root {tmp_path / 'crowds'} --init {tmp_path}/start.safetensors"
    line += " --width 16 --intervals 6 --crop 64 --batch 1 --steps 4 --warm-up 1 --threads 1 --validate-images 2"
    told = both(*line.split(), "--out", str(run), timeout=200)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "val"] == [4]
    assert (run / "weights.safetensors").is_file()
    assert told.count("Done") == told.count("step 4/4") == 1  # one process speaks for both


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted by Linux's /proc")
def test_no_thread_of_the_group_outlives_it_to_abort_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(OUTLIVING)
    before, after = both(str(script), timeout=100).split()
    assert int(before) > 0
    assert int(after) == 0


OUTLIVING = """
import gc
from pathlib import Path
import torch
from uepnet.training import distributed

def threads():
    return sum("gloo" in path.read_text() for path in Path("/proc/self/task").glob("*/comm"))

def learn(device):
    network = distributed.wrap(torch.nn.Linear(2, 2), device)
    network(torch.ones(1, 2)).sum().backward()

gc.disable()
with distributed.processes("cpu") as (rank, world, device):
    learn(device)
    before = threads()
if rank == 0:
    print(before, threads())
"""
