"""What is an address, and what is the name of a file."""

import os
from pathlib import Path

import pytest
from support.toy import toy_model
from support.videos import numbered, write_video

from uepnet.cli import main
from uepnet.video.addresses import is_address, shown, without_file_scheme
from uepnet.video.sources import is_live


@pytest.mark.parametrize("name", ["rtsp://camera/stream", "http://camera/video.mjpg", "SRT://camera:9000"])
def test_addresses(name: str) -> None:
    assert is_address(name) and is_live(name)


@pytest.mark.parametrize("name", ["a.mp4", "cache:file:///a.mp4", "/a://b.mp4", "C:a.mp4", "file:///videos/recording"])
def test_files(name: str) -> None:
    assert not is_live(name)


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///videos/a.mp4", "/videos/a.mp4"),
        ("FILE://localhost/videos/a%20b.mp4", "/videos/a b.mp4"),
        ("videos/a%20b.mp4", "videos/a%20b.mp4"),
    ],
)
def test_the_address_of_a_file_is_its_path(address: str, path: str) -> None:
    assert without_file_scheme(address) == path


def test_a_password_is_not_shown() -> None:
    assert shown("rtsp://user:secret@camera/stream") == "rtsp://camera/stream"


@pytest.mark.parametrize("option", ["--csv", "--out", "--annotate"])
def test_an_input_that_is_named_by_its_address_is_not_overwritten(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_video(tmp_path / "a.mp4", [numbered(number) for number in range(4)])
    model = toy_model(tmp_path / "model")
    content = path.read_bytes()
    assert main(["video", f"file://{path}", "--model", str(model), option, str(path), "--overwrite", "--quiet"]) == 2
    assert "is an input" in capsys.readouterr().err
    assert path.read_bytes() == content


def test_the_files_of_a_playlist_are_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [write_video(tmp_path / f"part {number}.ts", [numbered(number)] * 25) for number in range(2)]
    lines = ["#EXTM3U", "#EXT-X-TARGETDURATION:1", *(f"#EXTINF:1.0,\n{part.name}" for part in parts), "#EXT-X-ENDLIST"]
    (tmp_path / "all.m3u8").write_text("\n".join(lines))
    content = [part.read_bytes() for part in parts]
    line = ["video", str(tmp_path / "all.m3u8"), "--out", str(parts[1]), "--overwrite", "--quiet"]
    assert main(line) == 2
    assert "part 1.ts is an input" in capsys.readouterr().err
    assert [part.read_bytes() for part in parts] == content


@pytest.mark.parametrize("name", ["", "loop", "pipe", "file://"])
def test_what_cannot_be_opened_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = toy_model(tmp_path / "model")
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe")
    assert main(["video", name, "--model", str(model), "--quiet"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
