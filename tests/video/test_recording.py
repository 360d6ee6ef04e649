import csv
import json
import resource
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uepnet.model.errors import InputError, OutputError
from uepnet.video.recording import Record, Recording, moment_text, read_records, to_line
from uepnet.video.table import write_table

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
    recording = Recording(tmp_path / "nowhere" / "a.jsonl")
    with pytest.raises(OutputError, match=r"a.jsonl cannot be written: No such file or directory\."):
        recording.write(RECORDS[0])


def test_a_full_disk_is_one_sentence() -> None:
    recording = Recording(Path("/dev/full"), overwrite=True)
    with pytest.raises(OutputError, match="No space left on device"):
        recording.write(RECORDS[0])
    recording.close()


def test_a_disk_that_fills_up_in_the_middle_of_a_line_keeps_the_lines_before(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    room = len(to_line(RECORDS[0])) + len(to_line(RECORDS[1])) + 20
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from uepnet.model.errors import OutputError\nfrom uepnet.video.recording import Recording\n"
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
    assert "the lines before are kept" in done.stderr
    assert path.read_bytes() == to_line(RECORDS[0]) + to_line(RECORDS[1])


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"frame": 1}\n', b'{"frame": 1, "timestamp": 0.0}\n'])
def test_a_file_of_something_else_is_told_with_its_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(to_line(RECORDS[0]) + line)
    with pytest.raises(InputError, match=r"a.jsonl, line 2"):
        list(read_records(path))


@pytest.mark.parametrize(
    "change",
    [
        *({"count": count} for count in ("x", None, float("nan"), [])),
        *({"timestamp": moment} for moment in ("a", None, 1e300)),
        *({"time": time} for time in ("yesterday", 5, "2026-05-01T08:00:00")),
        *({"zones": zones} for zones in (5, None, [{"name": "a"}], ["a"])),
        *({"range": bounds} for bounds in (3, {"low": "a", "high": 2, "level": 0.9})),
        *({"camera": 5}, {"smoothed": "x"}, {"dropped": "many"}, {"warnings": "none"}),
    ],
)
def test_a_record_of_wrong_values_is_told_with_its_line(tmp_path: Path, change: Record) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(RECORDS[0]) + "\n" + json.dumps({**RECORDS[1], **change}) + "\n")
    with pytest.raises(InputError, match=rf"a.jsonl, line 2 is not a record .*: {next(iter(change))}.*: .*\.$"):
        list(read_records(path))


def test_what_has_no_end_of_a_line_is_refused() -> None:
    with pytest.raises(InputError, match="/dev/zero, line 1 is not a record"):
        list(read_records(Path("/dev/zero")))


def test_a_table_has_a_column_a_zone_and_leaves_gaps_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write_table([GAP, RECORDS[1]], path, ["left", "right"])
    with path.open(newline="", encoding="utf-8") as file:
        gap, row = list(csv.DictReader(file))
    assert (gap["count"], gap["gap"], gap["zone left"]) == ("", "the frame is damaged", "")
    assert (row["camera"], row["frame"], row["count"], row["low"], row["high"]) == ("Tür", "1", "10.5", "9.0", "12.0")
    assert (row["zone left"], row["zone right"]) == ("1.0", "")


def test_a_table_says_which_counts_carry_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    warned = {**RECORDS[1], "warnings": ["It may be wrong.", "It is dense."]}
    write_table([RECORDS[0], warned, GAP], path)
    with path.open(newline="", encoding="utf-8") as file:
        assert [row["warnings"] for row in csv.DictReader(file)] == ["", "It may be wrong. It is dense.", ""]
    write_table([RECORDS[0], warned, {**GAP, "camera": "Tür"}], path, per="minute")
    with path.open(newline="", encoding="utf-8") as file:
        assert [row["frames with warnings"] for row in csv.DictReader(file)] == ["1"]


def test_moments_are_told_as_people_tell_them() -> None:
    assert moment_text({"timestamp": 75.9}) == "01:15"
    assert moment_text({"timestamp": 3725.0}) == "1:02:05"
    local = datetime(2026, 5, 1, 8, tzinfo=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert moment_text({"timestamp": 0.0, "time": "2026-05-01T08:00:00.000Z"}) == local
