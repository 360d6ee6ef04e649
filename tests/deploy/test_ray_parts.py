"""The parts that counting on a cluster writes and continues; no cluster is needed for them."""

from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from pyarrow import fs  # noqa: E402

from uepnet.deploy.ray_count import SCHEMA, Row, counted_before, read_part, write_part  # noqa: E402
from uepnet.model.errors import InputError  # noqa: E402

SYSTEM = fs.LocalFileSystem()


def row(path: str, **values: object) -> Row:
    return dict.fromkeys(SCHEMA.names) | {"path": path, "model": "toy 1"} | values


def write(folder: Path, name: str, kind: str, *rows: Row) -> Path:
    path = folder / f"part-{name}.{kind}"
    write_part(SYSTEM, str(path), kind, pa.Table.from_pylist(list(rows), SCHEMA))
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_failed_images_are_tried_again_and_have_no_second_row(tmp_path: Path, kind: str) -> None:
    mixed = write(tmp_path, "a", kind, row("1", count=0.0, warnings="It, perhaps."), row("2", error="damaged"))
    failed = write(tmp_path, "b", kind, row("3", error="damaged"))
    whole = write(tmp_path, "c", kind, row("4", count=2.5, low=1.0, high=3.0))
    unchanged = whole.read_bytes()
    assert counted_before(str(tmp_path), kind, "toy 1") == {"1", "4"}
    assert read_part(SYSTEM, str(mixed), kind).to_pylist() == [row("1", count=0.0, warnings="It, perhaps.")]
    assert not failed.exists() and whole.read_bytes() == unchanged
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_parts_of_another_model_are_refused_and_stay(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, "a", kind, row("1", count=1.0), row("2", error="damaged"))
    before = path.read_bytes()
    with pytest.raises(InputError, match="was counted with the model toy 1, this is toy 2: choose another --out"):
        counted_before(str(tmp_path), kind, "toy 2")
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_foreign_part_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"part-a.{kind}"
    path.write_bytes(b"name,number\n1,2\n")
    with pytest.raises(InputError, match="is not a part that this command wrote"):
        counted_before(str(tmp_path), kind, "toy 1")
    assert path.read_bytes() == b"name,number\n1,2\n"
