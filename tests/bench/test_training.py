import json

import pytest

from uepnet.cli import main


def test_training_bench_reports_the_share_of_data_and_the_gain_of_the_closed_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        main(["bench", "training", "--steps", "1", "--batch", "1", "--people", "300", "--threads", "1", "--json"]) == 0
    )
    answer = json.loads(capsys.readouterr().out)
    step, targets = answer["rows"]
    assert 0 < step["data_share"] < 1
    assert step["data_seconds"] < step["seconds"]
    assert targets["ratio"] > 10
    assert answer["machine"]["cores"] >= 1
