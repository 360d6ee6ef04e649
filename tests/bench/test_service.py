"""`uepnet bench service`: the questions are asked of a real service; figures are not judged here."""

import argparse
import json
from pathlib import Path

import pytest
from support.toy import toy_model

from uepnet.bench import service


def test_each_question_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = toy_model(tmp_path / "model")  # tiles of 256: the image of 40 tiles stays small
    parser = argparse.ArgumentParser()
    service.configure(parser)
    words = ["--model", str(model), "--seconds", "0.7", "--rounds", "2", "--clients", "3", "--json"]
    assert service.run(parser.parse_args(words)) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["machine"]["cores"] >= 1
    throughput, busy, fairness, host, video = report["rows"]
    assert throughput["ratio"] > 0
    assert len(throughput["ratios"]) == 2
    assert 0 < busy["busy_share"] <= 1
    assert fairness["large_tiles"] == 40
    assert fairness["beside_p99_ms"] >= fairness["beside_p50_ms"] > 0
    assert fairness["limit_ms"] > fairness["alone_p50_ms"]
    assert host["per_second_and_core"] > 0 and host["tiles_per_image"] >= 40  # full HD in tiles of 256
    assert (len(video["ratios"]), video["in_flight"]) == (2, 3)
    assert video["video_per_second"] > 0
