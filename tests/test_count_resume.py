"""`uepnet count --csv`: what was counted is kept whatever ended the run, and a table is continued only as it began."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.toy import toy_model

from uepnet.cli import main

GREYS = (60, 90, 120, 255)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and four photos of which the brightest is denser than the model has seen."""
    folder = tmp_path_factory.mktemp("here")
    toy_model(folder / "model")
    (folder / "photos").mkdir()
    for number, grey in enumerate(GREYS):
        Image.fromarray(np.full((48, 64, 3), grey, np.uint8)).save(folder / "photos" / f"{number}.png")
    return folder


def count(here: Path, table: Path, *options: str) -> int:
    line = ["count", str(here / "photos"), "--model", str(here / "model"), "--csv", str(table), "--quiet", *options]
    return main(line)


@pytest.fixture(scope="module")
def unbroken(here: Path) -> bytes:
    assert count(here, here / "unbroken.csv") == 0
    return (here / "unbroken.csv").read_bytes()


def test_a_table_carries_the_warnings(unbroken: bytes) -> None:
    rows = list(csv.DictReader(unbroken.decode().splitlines()))
    assert [row["warnings"][:22] for row in rows] == ["", "", "", "The scene is denser th"]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_table_cut_anywhere_resumes_to_the_unbroken_one(data: st.DataObject, here: Path, unbroken: bytes) -> None:
    table = here / "cut.csv"
    table.write_bytes(unbroken[: data.draw(st.integers(0, len(unbroken)))])
    assert count(here, table, "--resume") == 0
    assert table.read_bytes() == unbroken


def test_an_image_that_failed_is_tried_again(here: Path, unbroken: bytes, tmp_path: Path) -> None:
    broken = here / "photos" / "1.png"
    content = broken.read_bytes()
    broken.write_bytes(b"no picture")
    assert count(here, tmp_path / "a.csv") == 1
    broken.write_bytes(content)
    assert count(here, tmp_path / "a.csv", "--resume") == 0
    assert sorted((tmp_path / "a.csv").read_bytes().splitlines()) == sorted(unbroken.splitlines())


def test_a_table_of_an_older_version_is_continued(here: Path, unbroken: bytes, tmp_path: Path) -> None:
    rows = list(csv.reader(unbroken.decode().splitlines()))
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(row[:-1] for row in rows[:3])
    assert count(here, tmp_path / "a.csv", "--resume") == 0
    assert (tmp_path / "a.csv").read_bytes() == unbroken


@pytest.mark.parametrize("content", [b"name,count\r\na,1\r\n", b"\xff\xd8\xff\xe0", b"some text"])
def test_a_foreign_file_is_refused_and_stays(
    here: Path, tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert count(here, tmp_path / "a.csv", "--resume") == 2
    assert "a.csv cannot be resumed" in capsys.readouterr().err
    assert (tmp_path / "a.csv").read_bytes() == content


def test_a_table_of_another_model_is_refused_and_stays(
    here: Path, unbroken: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = unbroken.replace(b"toy 1", b"toy 2")
    (tmp_path / "a.csv").write_bytes(other)
    assert count(here, tmp_path / "a.csv", "--resume") == 2
    assert "was counted with the model toy 2, this is toy 1" in capsys.readouterr().err
    assert (tmp_path / "a.csv").read_bytes() == other
