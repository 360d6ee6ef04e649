"""The command's manners: help, exit codes, output for people and for programs."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.paths import ROOT
from support.toy import toy_model

from uepnet.cli import COMMANDS, main
from uepnet.commands.shared.inputs import inputs
from uepnet.model.counter import Counter

HEAVY = ("numpy", "PIL", "pydantic", "httpx", "rich", "av", "torch", "onnxruntime", "fastapi", "matplotlib", "shtab")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_model(tmp_path_factory.mktemp("models") / "toy")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """photos/2.png, photos/10.png and photos/more/1.png, each brighter than the one before."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for name, grey in (("2.png", 60), ("10.png", 120), ("more/1.png", 180)):
        Image.fromarray(np.full((64, 96, 3), grey, np.uint8)).save(tmp_path / "photos" / name)
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    (tmp_path / "photos" / ".hidden.png").write_bytes(b"")
    return tmp_path


def uepnet(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "uepnet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]


def loaded_modules(*arguments: str) -> list[str]:
    script = (
        "import sys\nfrom uepnet.cli import main\n"
        f"try:\n    main({list(arguments)!r})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    return list(json.loads(done.stderr.replace("'", '"')))


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["count", "--help"], ["video", "--help"], ["plot", "-h"]]
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert loaded_modules(*arguments) == []


@pytest.mark.parametrize("command", ["count", "video", "plot"])
def test_help_teaches_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert f"\n  uepnet {command} " in capsys.readouterr().out


def test_the_version_is_the_newest_of_the_changelog(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert capsys.readouterr().out == f"uepnet {newest[1]}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["count"],
        ["count", "a.jpg", "--threads", "-1"],
        ["video", "a", "--fps", "0"],
        ["plot", "a.jsonl", "--alert", "nan"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_shells_complete_commands_options_and_files(tmp_path: Path) -> None:
    script = uepnet("--print-completion", "bash").stdout
    for name in COMMANDS:
        assert name in script
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    (tmp_path / "station.mp4").touch()

    def completed(*words: str) -> str:
        probe = f"{script}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_uepnet"
        command = ["bash", "-c", f"{probe}; echo ${{COMPREPLY[@]}}"]
        return subprocess.run(command, text=True, capture_output=True, cwd=tmp_path).stdout.strip()

    assert completed("uepnet", "video", "--ann") == "--annotate"
    assert completed("uepnet", "video", "stat") == "station.mp4"
    assert completed("uepnet", "count", "a.jpg", "--zones", "stat") == "station.mp4"


def test_a_table_shows_each_image_and_the_sum(photos: Path, model: Path) -> None:
    done = uepnet("count", "photos", "--model", model)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[1:4]] == ["photos/2.png", "photos/10.png", "photos/more/1.png"]
    assert rows[4][:5] == ["photos/more/1.png:", "The", "scene", "is", "denser"], "warnings stand below"
    assert rows[-1][:2] == ["3", "counted:"]
    assert "\x1b" not in done.stdout, "no colours in a pipe"


def test_a_terminal_gets_colours(photos: Path, model: Path) -> None:
    writer, reader = _terminal(["count", "photos/2.png", "--model", str(model)])
    assert writer == 0
    assert "\x1b[1m" in reader


def test_json_is_a_list_with_the_keys_of_the_contract(photos: Path, model: Path) -> None:
    (photos / "photos" / "3.png").write_bytes(b"no picture")
    done = uepnet("count", "photos", "--model", model, "--json")
    assert done.returncode == 1
    entries = json.loads(done.stdout)
    assert [entry["path"] for entry in entries] == [f"photos/{n}" for n in ("2.png", "3.png", "10.png", "more/1.png")]
    told = {"path", "count", "range", "zones", "saturated", "scales", "familiarity", "unfamiliar", "warnings", "model"}
    assert entries[0].keys() == told
    assert entries[1].keys() == {"path", "error"}
    assert done.stderr.startswith("uepnet: photos/3.png: ")
    expected = Counter(model, device="cpu").count(photos / "photos" / "10.png").count
    assert entries[2]["count"] == expected


def test_a_csv_has_a_row_an_image_and_a_column_a_zone(photos: Path, model: Path) -> None:
    zone = {"name": "left", "units": "fractions", "polygon": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}
    (photos / "zones.json").write_text(json.dumps({"zones": [zone]}))
    done = uepnet("count", "photos", "nowhere.jpg", "--model", model, "--csv", "-", "--zones", "zones.json")
    assert done.returncode == 1
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["path"] for row in rows][-2:] == ["photos/more/1.png", "nowhere.jpg"]
    assert float(rows[0]["zone left"]) == pytest.approx(float(rows[0]["count"]) / 2)
    assert rows[-1]["error"] == "The file cannot be read: No such file or directory."


def test_overlays_go_where_the_images_were_and_no_two_to_one_place(photos: Path, model: Path) -> None:
    (photos / "other").mkdir()
    (photos / "photos" / "2.png").rename(photos / "other" / "10.png")
    done = uepnet("count", "photos", "other/10.png", "--model", model, "--overlay", "drawn", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    drawn = sorted(path.relative_to(photos / "drawn").as_posix() for path in (photos / "drawn").rglob("*.png"))
    assert drawn == ["10-2.png", "10.png", "more/1.png"]
    with Image.open(photos / "drawn" / "10.png") as picture:
        assert picture.height > 64


def test_patterns_and_standard_input_are_counted(photos: Path, model: Path) -> None:
    done = uepnet("count", "photos/**/1*.png", "--model", model, "--json")
    assert [entry["path"] for entry in json.loads(done.stdout)] == ["photos/10.png", "photos/more/1.png"]
    with (photos / "photos" / "2.png").open("rb") as file:
        done = uepnet("count", "-", "--model", model, "--json", stdin=file)
    assert [entry["path"] for entry in json.loads(done.stdout)] == ["-"]


@pytest.mark.parametrize(
    ("path", "words"),
    [("nowhere.jpg", "nowhere.jpg does not exist"), ("empty", "no images in empty"), ("*.gif", r"no images in *.gif")],
)
def test_nothing_to_count_is_one_sentence_and_exit_code_2(photos: Path, path: str, words: str) -> None:
    (photos / "empty").mkdir()
    done = uepnet("count", path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


def test_a_pattern_without_a_match_is_reported_and_the_rest_go_on(photos: Path, model: Path) -> None:
    done = uepnet("count", "photos/2.png", "photos/*.gif", "--model", model, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)[1] == {"path": "photos/*.gif", "error": "No file matches this pattern."}


def test_json_and_csv_do_not_share_standard_output(photos: Path) -> None:
    done = uepnet("count", "photos", "--json", "--csv", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "both write to standard output" in done.stderr


def test_one_folder_that_cannot_be_read_does_not_spoil_the_rest(photos: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (photos / "photos" / "more").chmod(0)
    found = list(inputs(["photos"]))
    (photos / "photos" / "more").chmod(0o755)
    assert [image.error is None for image in found] == [True, True, False]


def test_a_full_disk_is_one_sentence(photos: Path, model: Path) -> None:
    done = uepnet("count", "photos", "--model", model, "--csv", "/dev/full")
    assert (done.returncode, done.stderr) == (
        2,
        "uepnet: /dev/full cannot be written further: No space left on device.\n",
    )
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "uepnet", "count", "photos", "--model", str(model), "--json"]
        written = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (written.returncode, written.stderr.count("\n")) == (2, 1)
    assert "No space left on device" in written.stderr


def test_a_reader_that_has_seen_enough_is_no_error(photos: Path, model: Path) -> None:
    command = f"{sys.executable} -m uepnet count {'photos ' * 200} --model {model} --json | head -n 2"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_server_and_a_model_exclude_each_other(photos: Path, model: Path) -> None:
    done = uepnet("count", "photos", "--model", model, "--server", "http://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (
        2,
        "uepnet: --model and --server exclude each other: a server counts with its own model.\n",
    )


def test_a_large_folder_is_walked_in_order_with_little_memory(tmp_path: Path) -> None:
    for number in range(20_000):
        (tmp_path / f"{number}.jpg").touch()
    tracemalloc.start()
    found = inputs([str(tmp_path)])
    assert [Path(next(found).path).stem for _ in range(12)] == [str(number) for number in range(12)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 25 * 2**20


def test_a_plot_tells_when_a_threshold_was_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts = [3, 8, 9, 2]
    lines = [{"frame": n, "timestamp": 30.0 * n, "count": c, "range": None, "zones": []} for n, c in enumerate(counts)]
    Path("gate.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = uepnet("plot", "gate.jsonl", "--alert", "5")
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["gate: 5 reached at 00:30, until 01:30, at most 9.0 people", "gate.png"],
    )
    assert Path("gate.png").stat().st_size > 1000


@pytest.mark.parametrize(("arguments", "code"), [("--csv new.csv --quiet", 0), ("--csv - --quiet", 2), ("", 2)])
def test_closed_standard_streams_are_no_place_for_a_file(photos: Path, model: Path, arguments: str, code: int) -> None:
    """Python opens the next file under their numbers: what is printed would go into it."""
    command = f'"{sys.executable}" -m uepnet count photos --model "{model}" {arguments}'
    done = subprocess.run(["sh", "-c", f"{command} <&- >&-"], stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == (code == 2)
    assert not code or "cannot be written: Bad file descriptor" in done.stderr


def _terminal(arguments: list[str]) -> tuple[int, str]:
    """Exit code and output of the command on a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "uepnet", *arguments]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    return child.wait(60), shown.decode()
