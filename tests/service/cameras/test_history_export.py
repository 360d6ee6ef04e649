"""`uepnet history export`: what was counted as a table, and nothing lost on the way."""

import csv
import unicodedata
from pathlib import Path

import pytest

from uepnet.cli import main
from uepnet.service.cameras.database import Database
from uepnet.service.cameras.history import History, Reading


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Two counts of a camera and its zone, a minute apart, and one of another camera."""
    path = tmp_path / "history.sqlite"
    database = Database(f"sqlite:///{path}")
    readings = [
        Reading("Süd", "", 60_000, 10.0, 8.0, 12.0, None),
        Reading("Süd", "doors", 60_000, 4.0, 3.0, 5.0, 0.5),
        Reading("Süd", "", 120_500, 20.0, 18.0, 22.0, None),
        Reading("gate", "", 60_000, 1.0, None, None, None),
    ]
    with database.writing() as connection:
        History(database).add(connection, readings)
    database.close()
    return path


def export(database: Path, *more: str) -> int:
    return main(["history", "export", "--history", f"sqlite:///{database}", *more])


def test_counts_of_all_cameras_are_a_table(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.csv"
    assert export(stored, "--resolution", "raw", "--out", str(out)) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [(row["camera"], row["zone"], row["time"], row["mean"]) for row in rows] == [
        ("Süd", "", "1970-01-01T00:01:00.000Z", "10.0"),
        ("Süd", "", "1970-01-01T00:02:00.500Z", "20.0"),
        ("Süd", "doors", "1970-01-01T00:01:00.000Z", "4.0"),
        ("gate", "", "1970-01-01T00:01:00.000Z", "1.0"),
    ]
    assert (rows[0]["low"], rows[0]["high"], rows[3]["low"]) == ("8.0", "12.0", "")


def test_one_camera_and_a_period_go_to_standard_output(stored: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = unicodedata.normalize("NFD", "Süd")  # as some keyboards write it
    period = ["--start", "1970-01-01T00:02:00Z", "--end", "1970-01-01T00:03:00Z"]
    assert export(stored, "--camera", name, *period, "--resolution", "hour", "--out", "-") == 0
    assert len(capfd.readouterr().out.splitlines()) == 1, "the hour begins before the period"
    assert export(stored, "--camera", name, *period, "--out", "-") == 0
    assert capfd.readouterr().out.splitlines()[1].startswith("Süd,1970-01-01T00:02:00.000Z,,20.0")


@pytest.mark.parametrize("name", ["history.sqlite", "history.sqlite-wal", "link.csv"])
def test_the_database_is_never_written_over(
    stored: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link.csv").symlink_to(stored)
    (tmp_path / "history.sqlite-wal").touch()
    before = stored.read_bytes()
    assert export(stored, "--out", str(tmp_path / name), "--overwrite") == 2
    assert "is an input" in capsys.readouterr().err
    assert stored.read_bytes() == before


def test_an_existing_file_is_replaced_only_if_asked_for(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "may.csv"
    out.write_text("mine")
    assert export(stored, "--out", str(out)) == 2
    assert "exists" in capsys.readouterr().err
    assert export(stored, "--camera", "nobody", "--out", str(out), "--overwrite") == 2
    assert "it has: Süd, gate" in capsys.readouterr().err
    assert out.read_text() == "mine", "a mistake leaves the old file"
    assert export(stored, "--out", str(out), "--overwrite") == 0
    assert out.read_text().startswith("camera,time,zone")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--history", "off"], "There is no history at off"),
        (["--history", "sqlite:////nowhere/h.sqlite"], "There is no history at /nowhere/h.sqlite"),
        (["--start", "1970-01-02T00:00:00Z", "--end", "1970-01-01T00:00:00Z"], "must lie before"),
        (["--start", "1970-01-02"], "has no time zone"),
    ],
)
def test_a_mistake_is_one_sentence(
    stored: Path, tmp_path: Path, options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = export(stored, "--out", str(tmp_path / "x.csv"), *options)
    except SystemExit as exit:  # argparse's own
        code = exit.code
    assert code == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()
