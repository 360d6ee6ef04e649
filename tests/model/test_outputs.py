"""The rules for files that are written: no input, no other output and no existing file is lost."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uepnet.model.errors import InputError, OutputError
from uepnet.model.outputs import Output, check_outputs, is_regular, open_log, whole_file, whole_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Inputs a.png and in/b.png, an old result, and links of all kinds to them."""
    _fill(tmp_path)
    return tmp_path


NAMES = (
    *("a.png", "link.png", "hard.png", "in/b.png", "linked/b.png", "in/../a.png", "old.csv", "new.csv", "nowhere.csv"),
    *("linked/new.csv", "in/new.csv", "other.csv", "pipe", "in", "missing/x.csv", "old.csv/x", "/dev/null"),
)


@given(st.lists(st.sampled_from(NAMES), max_size=4), st.booleans())
def test_no_input_no_other_output_and_nothing_old_is_lost(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], overwrite: bool
) -> None:
    folder = tmp_path_factory.mktemp("case")
    _fill(folder)
    outputs = [Output(f"--{number}", folder / name) for number, name in enumerate(names)]
    inputs = [folder / "a.png", folder / "in"]
    try:
        check_outputs(outputs, inputs, overwrite)
    except InputError:
        return
    written = [output.path for output in outputs if is_regular(output.path)]
    for number, path in enumerate(written):
        with whole_file(path) as file:
            file.write(f"output {number}".encode())
    assert (folder / "a.png").read_text() == "input a"
    assert (folder / "in" / "b.png").read_text() == "input b"
    assert overwrite or (folder / "old.csv").read_text() == "old"
    assert [path.read_text() for path in written] == [f"output {number}" for number in range(len(written))]
    assert not list(folder.rglob("*.part"))


def _fill(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "a.png").write_text("input a")
    (folder / "in" / "b.png").write_text("input b")
    (folder / "old.csv").write_text("old")
    (folder / "link.png").symlink_to(folder / "a.png")
    (folder / "hard.png").hardlink_to(folder / "in" / "b.png")
    (folder / "linked").symlink_to(folder / "in")
    (folder / "nowhere.csv").symlink_to(folder / "new.csv")
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize("name", ["a.png", "link.png", "hard.png", "linked/b.png", "in/../a.png"])
def test_an_input_is_refused_however_it_is_reached(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match="is an input: write to another file"):
        check_outputs([Output("--csv", folder / name)], [folder / "a.png", folder / "in"], overwrite=True)


@pytest.mark.parametrize(("first", "second"), [("x.csv", "in/../x.csv"), ("new.csv", "nowhere.csv"), ("pipe", "pipe")])
def test_two_outputs_are_two_files(folder: Path, first: str, second: str) -> None:
    outputs = [Output("--csv", folder / first), Output("--out", folder / second)]
    with pytest.raises(InputError, match="--csv and --out name the same file"):
        check_outputs(outputs, overwrite=True)


def test_an_existing_file_needs_overwrite_or_resume(folder: Path) -> None:
    with pytest.raises(InputError, match=r"old.csv exists: choose another name, or replace it with --overwrite"):
        check_outputs([Output("--csv", folder / "old.csv")])
    check_outputs([Output("--csv", folder / "old.csv")], overwrite=True)
    check_outputs([Output("--csv", folder / "old.csv", resumed=True)])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("in", "is a folder"),
        ("missing/x.csv", "there is no folder"),
        ("old.csv/x", "there is no folder|Not a directory"),
        ("x" * 300, "too long"),
        ("x.txt", r"the name must end in .png or .svg"),
    ],
)
def test_a_place_where_no_file_can_be_is_told_at_once(folder: Path, name: str, words: str) -> None:
    suffixes = (".png", ".svg") if name == "x.txt" else ()
    with pytest.raises(InputError, match=words):
        check_outputs([Output("--csv", folder / name, suffixes)], overwrite=True)


def test_devices_and_pipes_are_outputs_that_need_no_overwrite(folder: Path) -> None:
    check_outputs([Output("--csv", Path("/dev/null")), Output("--out", Path("/dev/null"))])
    check_outputs([Output("--csv", Path("/dev/stdout"), (".csv",)), Output("--out", folder / "pipe", (".jsonl",))])


def test_a_named_pipe_gets_what_is_written(folder: Path) -> None:
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((folder / "pipe").read_text()))
    reader.start()
    with whole_text(folder / "pipe") as file:
        file.write("whole")
    reader.join(10)
    assert got == ["whole"]
    assert (folder / "pipe").is_fifo()


def test_standard_output_that_is_redirected_is_continued_and_not_begun_anew(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from uepnet.model.outputs import open_log\n"
        "sys.stdout.write('printed\\n'); file = open_log(Path('/dev/stdout')); file.write(b'written\\n')\n"
    )
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", script], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "printed\nwritten\n"


def test_after_an_error_the_old_file_is_there_and_nothing_else(folder: Path) -> None:
    before = sorted(folder.iterdir())
    with pytest.raises(RuntimeError), whole_file(folder / "old.csv") as file:
        file.write(b"half")
        raise RuntimeError
    assert (folder / "old.csv").read_text() == "old"
    assert sorted(folder.iterdir()) == before


def test_a_link_stays_a_link_and_permissions_stay(folder: Path) -> None:
    (folder / "old.csv").chmod(0o640)
    (folder / "results.csv").symlink_to(folder / "old.csv")
    with whole_text(folder / "results.csv") as file:
        file.write("new")
    assert (folder / "results.csv").is_symlink()
    assert (folder / "old.csv").read_text() == "new"
    assert (folder / "old.csv").stat().st_mode & 0o777 == 0o640


def test_a_full_disk_is_one_sentence() -> None:
    full = Path("/dev/full")
    with pytest.raises(OutputError, match="/dev/full cannot be written: No space left"), whole_file(full) as file:
        file.write(b"x")


def test_a_log_is_written_in_place(folder: Path) -> None:
    with open_log(folder / "log.jsonl") as file:
        file.write(b"one\n")
        assert (folder / "log.jsonl").read_bytes() == b"one\n"
