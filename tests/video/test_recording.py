import csv
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uepnet.model.errors import InputError, OutputError
from uepnet.service.recording import Record, Recording, moment_text, read_records, to_line, write_csv

RECORDS: list[Record] = [
    {
        "frame": number,
        "timestamp": number / 25,
        "camera": "Tür",
        "count": 10.5 * number,
        "range": {"low": 9.0, "high": 12.0, "level": 0.9},
        "zones": [{"name": "left", "count": 1.0}],
    }
    for number in range(4)
]
GAP: Record = {"frame": 4, "timestamp": 0.16, "gap": "the frame is damaged"}


def write(recording: Recording, records: list[Record]) -> None:
    for record in records:
        recording.write(record)
    recording.close()


def test_records_are_there_line_by_line_while_recording(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl")
    for number, record in enumerate(RECORDS, 1):
        recording.write(record)
        assert list(read_records(tmp_path / "a.jsonl")) == RECORDS[:number]
    recording.close()


@given(data=st.data())
def test_a_recording_cut_anywhere_resumes_to_the_unbroken_one(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.jsonl"
    unbroken = b"".join(map(to_line, [*RECORDS, GAP]))
    path.write_bytes(unbroken[: data.draw(st.integers(0, len(unbroken)))])
    recording = Recording(path, resume=True)
    kept = list(recording.kept())
    write(recording, [*RECORDS, GAP][len(kept) :])
    assert path.read_bytes() == unbroken


def test_an_existing_recording_is_not_written_over_unasked(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(Recording(path), RECORDS)
    with pytest.raises(InputError, match="--resume"):
        Recording(path)
    assert list(read_records(path)) == RECORDS
    write(Recording(path, overwrite=True), RECORDS[:1])
    assert list(read_records(path)) == RECORDS[:1]


def test_an_empty_recording_leaves_no_file(tmp_path: Path) -> None:
    Recording(tmp_path / "a.jsonl").close()
    assert not (tmp_path / "a.jsonl").exists()


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"a.jsonl cannot be written: No such file or directory\."):
        Recording(tmp_path / "nowhere" / "a.jsonl")


def test_a_full_disk_is_one_sentence() -> None:
    recording = Recording(Path("/dev/full"))
    with pytest.raises(OutputError, match="No space left on device"):
        recording.write(RECORDS[0])
    recording.close()


def test_a_disk_that_fills_up_in_the_middle_of_a_line_keeps_the_lines_before(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    room = len(to_line(RECORDS[0])) + len(to_line(RECORDS[1])) + 20
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from uepnet.model.errors import OutputError\nfrom uepnet.service.recording import Recording\n"
        f"recording = Recording(Path({str(path)!r}))\n"
        f"records = {RECORDS!r}\n"
        "try:\n    [recording.write(record) for record in records]\n"
        "except OutputError as error:\n    sys.exit(str(error))\n"
    )

    def small_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    done = subprocess.run(
        [sys.executable, "-c", script], preexec_fn=small_disk, capture_output=True, text=True, timeout=60
    )
    assert "what it holds is kept" in done.stderr
    assert path.read_bytes() == to_line(RECORDS[0]) + to_line(RECORDS[1])


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"frame": 1}\n', b'{"frame": 1, "timestamp": 0.0}\n'])
def test_a_file_of_something_else_is_told_with_its_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(to_line(RECORDS[0]) + line)
    with pytest.raises(InputError, match=r"a.jsonl, line 2"):
        list(read_records(path))


def test_a_table_has_a_column_a_zone_and_leaves_gaps_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write_csv([GAP, RECORDS[1]], path, ["left", "right"])
    with path.open(newline="", encoding="utf-8") as file:
        gap, row = list(csv.DictReader(file))
    assert (gap["count"], gap["gap"], gap["zone left"]) == ("", "the frame is damaged", "")
    assert (row["camera"], row["frame"], row["count"], row["low"], row["high"]) == ("Tür", "1", "10.5", "9.0", "12.0")
    assert (row["zone left"], row["zone right"]) == ("1.0", "")


def test_moments_are_told_as_people_tell_them() -> None:
    assert moment_text({"timestamp": 75.9}) == "01:15"
    assert moment_text({"timestamp": 3725.0}) == "1:02:05"
    assert moment_text({"timestamp": 0.0, "time": "2026-05-01T08:00:00.000Z"}) == "2026-05-01T08:00:00.000Z"
