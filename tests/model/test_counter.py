"""What people hand to `Counter`, and what they get."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.toy import toy_model
from support.videos import numbered, write_video

import uepnet
from uepnet import Counter, UepnetError, Zone
from uepnet.model.errors import InputError

LEFT = Zone(name="left", units="fractions", polygon=((0, 0), (0.5, 0), (0.5, 1), (0, 1)))


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Counter:
    return Counter(toy_model(tmp_path_factory.mktemp("models") / "toy"), device="cpu")


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Red on the left, dark on the right, with an EXIF orientation."""
    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[:, :48, 0] = 240
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "crowd.png", exif=exif)
    return tmp_path / "crowd.png"


def test_public_names_are_listed_and_there() -> None:
    assert {name for name in dir(uepnet) if not name.startswith("_")} == set(uepnet.__all__) - {"__version__"}
    for name in ("Counter", "Client", "AsyncClient", "Artifact", "Count", "Zone", "load_zones", "UepnetError"):
        assert name in uepnet.__all__
        assert getattr(uepnet, name) is not None


def test_all_kinds_of_sources_give_the_same_count(counter: Counter, photo: Path) -> None:
    expected = counter.count(photo)
    upright = np.rot90(np.asarray(Image.open(photo).convert("RGB")), -1)
    with photo.open("rb") as file, Image.open(photo) as pil:
        sources = [str(photo), photo.read_bytes(), memoryview(photo.read_bytes()), file, pil, upright]
        results = [counter.count(source, [LEFT]) for source in sources]
    assert {(result.width, result.height) for result in results} == {(64, 96)}
    assert {result.count for result in results} == {expected.count}
    assert expected.count > 0


def test_bgr_arrays_are_turned_around(counter: Counter) -> None:
    rgb = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    result = counter.count(rgb[:, :, ::-1], bgr=True)
    assert np.array_equal(result.read_image(), rgb)


@pytest.mark.parametrize(
    "options", [{"device": 5}, {"precision": None}, {"engine": 1.5}, {"decoding": True}, {"threads": "2"}, {"model": 3}]
)
def test_options_of_wrong_types_are_one_sentence(options: dict[str, Any]) -> None:
    with pytest.raises(UepnetError, match=rf"{next(iter(options))} is .*, not"):
        Counter(**options)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (12, "An image is a path, bytes, a file opened in binary mode, .* not int"),
        (None, "not NoneType"),
        (io.StringIO("text"), "not str"),
        (["a.jpg"], r"takes one image, not a list: use count_many\(\)"),
        (np.zeros((4, 4)), "must be uint8"),
    ],
)
def test_what_is_no_image_is_one_sentence(counter: Counter, source: object, words: str) -> None:
    with pytest.raises(UepnetError, match=words):
        counter.count(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("several", ["photo.jpg", Path("photo.jpg"), b"bytes", np.zeros((8, 8, 3), np.uint8), None, 3])
def test_one_image_is_not_taken_for_many(counter: Counter, several: object) -> None:
    with pytest.raises(UepnetError, match=r"^count_many\(\) takes a list"):
        list(counter.count_many(several))  # type: ignore[call-overload]


@pytest.mark.parametrize("zones", ["zones.json", Path("zones.json"), LEFT, [{"name": "a"}], None])
def test_what_is_no_list_of_zones_is_one_sentence(counter: Counter, photo: Path, zones: object) -> None:
    calls: list[Any] = [lambda: counter.count(photo, zones), lambda: counter.count_many([photo], zones)]  # type: ignore
    for call in [*calls, lambda: counter.video(photo, zones)]:  # type: ignore[arg-type]
        with pytest.raises(UepnetError, match=r"^Zones are a list"):
            list(call())


def test_zones_of_an_iterator_are_counted_in_every_image(counter: Counter, photo: Path) -> None:
    for result in counter.count_many([photo, photo], iter([LEFT])):  # type: ignore[call-overload]
        assert [zone.name for zone in result.zones] == ["left"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": 3}, "model is the folder"),
        ({"threads": -1}, "threads is a number"),
        ({"threads": "2"}, "threads is a number"),
    ],
)
def test_a_counter_is_not_opened_with_nonsense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UepnetError, match=words):
        Counter(**options)


def test_a_closed_file_is_one_sentence(counter: Counter, photo: Path) -> None:
    with photo.open("rb") as file:
        pass
    with pytest.raises(UepnetError, match="The file cannot be read: read of closed file"):
        counter.count(file)


def test_many_images_are_counted_as_they_are_asked_for(counter: Counter, photo: Path) -> None:
    taken: list[int] = []

    def paths() -> Iterator[Path]:
        for number in range(1_000_000):
            taken.append(number)
            yield photo

    results = counter.count_many(paths())
    assert next(results).count == next(results).count
    assert taken == [0, 1]


def test_a_bad_image_raises_or_gives_its_error(counter: Counter, photo: Path) -> None:
    sources = [photo, "nowhere.jpg", photo]
    with pytest.raises(UepnetError, match=r"nowhere.jpg cannot be read"):
        list(counter.count_many(sources))
    first, error, last = counter.count_many(sources, errors="return")
    assert isinstance(error, UepnetError) and not isinstance(first, UepnetError) and not isinstance(last, UepnetError)


def test_a_decoding_is_chosen_for_the_counter_or_for_a_call(photo: Path, tmp_path: Path) -> None:
    model = toy_model(tmp_path / "expecting", decoding="expectation")
    own, argmax = Counter(model, device="cpu"), Counter(model, device="cpu", decoding="argmax")
    assert (own.artifact.decoding, argmax.artifact.decoding) == ("expectation", "argmax")
    expected = own.count(photo, decoding="argmax").count
    assert own.count(photo).count != expected
    assert argmax.count(photo).count == next(own.count_many([photo], decoding="argmax")).count == expected
    video = write_video(tmp_path / "a.mp4", [numbered(5)])
    (frame,) = own.video(video, decoding="argmax")
    (own_frame,) = own.video(video)
    assert frame.count == next(argmax.video(video)).count != own_frame.count


def test_a_model_without_classes_refuses_argmax_when_it_is_opened(tmp_path: Path) -> None:
    model = toy_model(tmp_path / "regression", decoding="regression")
    with pytest.raises(InputError, match="decodes by regression, not by argmax"):
        Counter(model, device="cpu", decoding="argmax")


def test_a_result_can_be_saved_and_shown_but_never_over_its_image(counter: Counter, photo: Path) -> None:
    result = counter.count(photo, [LEFT])
    before = photo.read_bytes()
    link = photo.with_name("link.png")
    link.symlink_to(photo)
    for place in (photo, link):
        with pytest.raises(InputError, match="is an input"):
            result.save(place)
    assert photo.read_bytes() == before
    with photo.open("rb") as file, Image.open(photo) as pil:
        for read in (counter.count(file), counter.count(pil)):
            with pytest.raises(InputError, match="is an input"):
                read.save(photo)
    assert photo.read_bytes() == before
    for suffix in (".png", ".jpg", ".webp"):
        saved = result.save(photo.with_name(f"drawn{suffix}"))
        with Image.open(saved) as picture:
            assert picture.height > 96
    assert result._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"must end in \.png, \.jpg"):
        result.save(photo.with_name("drawn.txt"))


def test_a_result_is_a_dictionary_like_the_commands_json(counter: Counter, photo: Path) -> None:
    found = counter.count(photo, [LEFT]).to_dict()
    assert {"count", "range", "zones", "saturated", "warnings", "model"} <= found.keys()
    assert found["zones"][0]["name"] == "left"
    assert found["model"] == {"name": "toy", "version": "1"}


def test_a_video_is_a_stream_of_counts(counter: Counter, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", [numbered(number // 2) for number in range(50)])
    frames = list(counter.video(path, [LEFT], fps=5, end=1))
    assert [frame.frame for frame in frames] == [0, 5, 10, 15, 20]
    assert [frame.seconds for frame in frames] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    counts = [frame.count for frame in frames if frame.count is not None]
    assert counts == sorted(counts) and counts[0] < counts[-1]
    (tmp_path / "frames").mkdir()
    (tmp_path / "frames" / "1.png").write_bytes(b"no picture")
    (gap,) = counter.video(tmp_path / "frames")
    assert gap.count is None and gap.gap is not None


@pytest.mark.parametrize(
    "choice",
    [
        *({"every": every} for every in (0, -1, 1.5, "2", True)),
        *({"fps": fps} for fps in (0, -1, "1", float("nan"), float("inf"))),
        *({"start": start} for start in (-1, "1:00")),
        *({"end": 0}, {"start": 2, "end": 1}, {"every": 2, "fps": 1}, {"rate": 0}, {"deinterlace": "maybe"}),
    ],
)
def test_a_choice_of_frames_that_means_nothing_is_one_sentence(
    counter: Counter, tmp_path: Path, choice: dict[str, Any]
) -> None:
    path = write_video(tmp_path / "a.mp4", [numbered(1)])
    with pytest.raises(UepnetError):
        counter.video(path, **choice)


@pytest.mark.parametrize("source", [None, ["a.mp4"], 1.5, True])
def test_what_is_no_video_source_is_one_sentence(counter: Counter, source: Any) -> None:
    with pytest.raises(UepnetError, match=r"video\(\) takes a path"):
        counter.video(source)


def test_a_camera_that_is_not_there_is_an_error_without_retry(counter: Counter) -> None:
    with pytest.raises(UepnetError, match="/dev/video97 cannot be opened"):
        list(counter.video(97, retry=False))
