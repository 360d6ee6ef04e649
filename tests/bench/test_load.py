import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from support.servers import Running, encoded, grey, running
from support.toy import toy_model

from uepnet.bench import load
from uepnet.model.errors import InputError
from uepnet.service.settings import Settings


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    model = toy_model(tmp_path_factory.mktemp("model"))
    with running(Settings(port=0, model=model)) as server:
        yield server


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    load.configure(parser)
    return parser.parse_args(words)


def test_a_closed_loop_reports_each_number_of_senders(
    service: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "load.png"
    words = ("--senders", "1", "2", "--seconds", "0.5", "--warm-up", "0", "--size", "64x64", "--json")
    assert load.run(parse(service.url, *words, "--plot", str(picture))) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["machine"]["cores"] >= 1
    assert [(row["mode"], row["load"]) for row in report["rows"]] == [("closed", 1), ("closed", 2)]
    for row in report["rows"]:
        assert row["ok"] > 0 and row["failed"] == 0
        assert row["latency_ms"]["p50"] <= row["latency_ms"]["p99"] <= row["latency_ms"]["max"]
    with Image.open(picture) as image:
        assert image.size == (840, 720)


def test_an_open_loop_sends_as_cameras(service: Running, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--rate", "40", "--seconds", "1", "--warm-up", "0", "--size", "64x64", "--cameras", "3")
    assert load.run(parse(service.url, *words)) == 0
    assert "rate" in capsys.readouterr().out
    cameras = service.http.get("/v1/cameras").json()["cameras"]
    assert [camera["camera"] for camera in cameras] == ["load-0", "load-1", "load-2"]


def test_images_are_sent_in_turn(service: Running, tmp_path: Path) -> None:
    sizes = ((32, 32), (64, 32))
    paths = [tmp_path / f"{width}.png" for width, _ in sizes]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(encoded(grey(*size)))
    people = service.metric("uepnet_people_total")
    images = service.metric("uepnet_images_total")
    words = ("--senders", "1", "--seconds", "0.3", "--warm-up", "0", "--images", *map(str, paths))
    assert load.run(parse(service.url, *words)) == 0
    mean = (service.metric("uepnet_people_total") - people) / (service.metric("uepnet_images_total") - images)
    one_cell = 4.25  # what the toy answers for a white cell: the mean of the top proxies, 4 and 4.5
    assert 16 * one_cell < mean < 32 * one_cell


def test_answers_that_are_failures_make_the_exit_code_1(service: Running, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(encoded(grey(32, 32)))
    bad.write_bytes(b"no image")
    words = ("--senders", "1", "--seconds", "0.2", "--warm-up", "0", "--images", str(good), str(bad))
    assert load.run(parse(service.url, *words)) == 1


def test_nobody_there_is_said_in_one_sentence() -> None:
    with pytest.raises(InputError, match="does not answer to a first image"):
        load.run(parse("http://127.0.0.1:9", "--size", "32x32"))


def test_a_missing_image_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Cannot read .*nothing\.jpg"):
        load.run(parse("http://127.0.0.1:9", "--images", str(tmp_path / "nothing.jpg")))


@pytest.mark.parametrize("name", ["load.txt", "nowhere/load.png"])
def test_a_plot_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="--plot"):
        load.run(parse("http://127.0.0.1:9", "--plot", str(tmp_path / name)))


def test_a_plot_is_never_drawn_over_an_image_that_is_sent_nor_over_another_file(tmp_path: Path) -> None:
    picture = tmp_path / "crowd.png"
    picture.write_bytes(b"kept")
    plot = ("--plot", str(picture))
    with pytest.raises(InputError, match=r"exists: .*--overwrite"):
        load.run(parse("http://127.0.0.1:9", *plot))
    with pytest.raises(InputError, match="is an input"):
        load.run(parse("http://127.0.0.1:9", *plot, "--overwrite", "--images", str(picture)))
    assert picture.read_bytes() == b"kept"


@pytest.mark.parametrize("size", ["big", "64", "0x64", "64x99999"])
def test_a_wrong_size_is_refused(size: str) -> None:
    with pytest.raises(InputError, match="--size"):
        load.drawn_image(size)


@pytest.mark.parametrize("words", [("--senders", "0"), ("--rate", "-1"), ("--seconds", "1e9")])
def test_load_without_bounds_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("http://127.0.0.1:9", *words)
    assert "is not within" in capsys.readouterr().err
