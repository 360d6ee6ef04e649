"""Tables of points as spreadsheets write them: read, or refused in one sentence that helps."""

from pathlib import Path

import pytest
from support import releases
from support.releases import only

from uepnet.model.errors import DataError
from uepnet.training.data.dataset import load


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252"]
)
def test_a_table_is_read_in_the_encodings_that_spreadsheets_write(encoding: str, tmp_path: Path) -> None:
    releases.picture(tmp_path / "Fußgänger.png")
    (tmp_path / "points.csv").write_bytes("image;x;y\nFußgänger.png;1;2\n".encode(encoding))
    sample = only("csv", tmp_path)
    assert sample.image.is_file()
    assert sample.points.tolist() == [[1, 2]]


def test_a_guessed_encoding_is_noted(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_bytes("image,x,y\nBr\u00fccke.png,1,2\n".encode("cp1252"))
    assert "read as Windows-1252" in only("csv", tmp_path).notes[0]


@pytest.mark.parametrize(
    "header", ['"image","x","y"', "filename,x,y", "File_Name;X;Y", "path,x_px,y_px", '"Image", "x [px]", "y [px]"']
)
def test_columns_may_be_quoted_and_called_otherwise(header: str, tmp_path: Path) -> None:
    separator = ";" if ";" in header else ","
    (tmp_path / "points.csv").write_text(f"{header}\n" + separator.join(["a b.png", "1", "2"]) + "\n")
    assert only("csv", tmp_path).points.tolist() == [[1, 2]]


def test_decimal_commas_are_explained(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("image;x;y\na.png;412,5;96,25\n")
    with pytest.raises(DataError, match=r"412,5 has a decimal comma: write 412\.5"):
        _ = only("csv", tmp_path).points
    (tmp_path / "points.csv").write_text("image,x,y\na.png,412,5,96,25\n")
    with pytest.raises(DataError, match="5 fields under 3 columns"):
        load("csv", tmp_path)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", b"\xff\xfea"])
def test_what_is_no_text_is_refused_with_the_encodings_that_are_read(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_bytes(content)
    with pytest.raises(DataError) as refusal:
        load("csv", tmp_path)
    assert "UTF-16" in str(refusal.value) or "columns image, x and y" in str(refusal.value)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ('a.png,1,2\n"a.png,3,4\na.png,5,6\n', "unexpected end of data"),
        ('a.png,1,2\n"a.png,3,4\na.png"\n', "a quotation mark that is not closed"),
    ],
)
def test_a_quotation_mark_that_is_not_closed_swallows_no_rows(rows: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("image,x,y\n" + rows)
    with pytest.raises(DataError, match=says):
        load("csv", tmp_path)


def test_numbers_of_thousands_of_digits_are_refused_briefly(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text(f"image,x,y\na.png,{'9' * 5000},1\n")
    with pytest.raises(DataError) as refusal:
        _ = only("csv", tmp_path).points
    assert len(str(refusal.value)) < 300
