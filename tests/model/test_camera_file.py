"""The camera file: what it holds, and that each mistake is refused with its line."""

from pathlib import Path

import pytest

from uepnet.model.camera_file import load_cameras, parse_cameras
from uepnet.model.cameras import CameraError, CameraSettings, Limit, check_camera
from uepnet.model.errors import InputError

FILE = """cameras:
  gate:
    source: rtsp://10.0.0.5/stream
    fps: 0.5
    zones:
      - {name: doors, polygon: [[0.1, 0.2], [0.9, 0.2], [0.9, 0.9]], units: fractions}
    ground:
      points: [[0.2, 0.3], [0.8, 0.3], [1, 1], [0, 1]]
      metres: [[0, 0], [10, 0], [10, 6], [0, 6]]
    mask: [[[0, 0], [0.1, 0], [0.1, 0.1]]]
    limits:
      - {people: 400}
      - {zone: doors, people: 50, for_seconds: 30, clear_below: 45, cooldown_seconds: 300}
      - {zone: doors, per_square_metre: 3.5}
  Gleis 3 Süd:
    source: 0
notify:
  webhooks: [{url: "https://example.org/hook", secret_env: HOOK_SECRET}]
  mqtt: {host: localhost, home_assistant: true}
"""


def test_the_whole_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cameras.yml"
    path.write_text(FILE)
    file = load_cameras(path)
    gate = file.cameras["gate"]
    assert (gate.source, gate.fps, gate.zones[0].name) == ("rtsp://10.0.0.5/stream", 0.5, "doors")
    assert gate.limits[1] == Limit(zone="doors", people=50, for_seconds=30, clear_below=45, cooldown_seconds=300)
    assert (gate.area_units, gate.masks()[0].units, gate.keep_picture) == ("fractions", "fractions", False)
    assert file.cameras["Gleis 3 Süd"].source == "0"
    assert file.notify.mqtt is not None and file.notify.mqtt.topic == "uepnet"
    assert file.notify.webhooks[0].secret_env == "HOOK_SECRET"
    assert "source" not in gate.settings.model_dump()


@pytest.mark.parametrize(
    ("written", "changed", "line", "text"),
    [
        ("zone: doors, people", "zone: door, people", 13, '"door" does not exist; the camera\'s zones: doors'),
        ("fps: 0.5", "fsp: 0.5", 4, '"fsp" is not known; did you mean fps?'),
        ("for_seconds", "for_second", 13, "did you mean for_seconds?"),
        ("notify:", "notfiy:", 17, "did you mean notify?"),
        ("[0.9, 0.9]]", "[0.5, 0.2]]", 6, "lie on one line"),
        ("[0.8, 0.3]", "[0.2, 0.3]", 7, "(almost) on one line"),
        ("[[0, 0], [0.1, 0], [0.1, 0.1]]", "[[0, 0], [0.1, 0]]", 10, "at least 3 different points"),
        ("people: 400", "people: -1", 12, "greater than 0"),
        ("{people: 400}", "{for_seconds: 3}", 12, "either people or per_square_metre"),
        ("{people: 400}", "{people: 50, zone: doors, for_seconds: 30}", 13, "there twice"),
        ("clear_below: 45", "clear_below: 55", 13, "at most the limit"),
        ("  gate:", "  gate/1:", 2, "letters, digits, spaces"),
        ("fps: 0.5", "fps: 0.5\n    fps: 2", 5, "there twice"),
        ("https://example.org/hook", "example.org", 18, "looks like https://"),
        ("cameras:\n", "cameras:\n  gate: [\n", 4, "not valid YAML"),
        ("    source: 0", "", 15, "needs settings below its name"),
        (
            "[0.1, 0.2], [0.9, 0.2], [0.9, 0.9]",
            "[0.1, 0.8], [0.15, 0.8], [0.15, 0.85]",
            14,
            "at least 10 m²",
        ),
        ("host: localhost", "hots: localhost", 19, '"hots" is not known; did you mean host?'),
        ("  mqtt: {host: localhost,", "  mqtt: {", 19, "notify.mqtt.host: it is missing"),
        ("points: [[0.2, 0.3], [0.8, 0.3], [1, 1], [0, 1]]", "points: 5", 8, "it must be a list"),
        (
            "[0.8, 0.3], [1, 1], [0, 1]]",
            "[8, 0.3], [10, 10], [0, 10]]",
            8,
            "the fraction 8; fractions of the frame run",
        ),
        ("[1, 1], [0, 1]]", "[1, 1]]", 8, "ground.points: it must have at least 4 items"),
        ("[[0.2, 0.3], [0.8, 0.3], [1, 1]", "[[0.45, 0.3], [0.55, 0.3], [1, 1]", 14, "above the horizon"),
    ],
)
def test_a_mistake_is_refused_with_its_line(written: str, changed: str, line: int, text: str) -> None:
    assert FILE.count(written) >= 1
    with pytest.raises(InputError) as caught:
        parse_cameras(FILE.replace(written, changed, 1), "cameras.yml")
    assert str(caught.value).startswith(f"cameras.yml, line {line}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("content", ["", "3", "- a", "cameras: 3", "a: &a [*a]", b"\xff\xfe\x00", "cameras: {gate: }"])
def test_what_is_no_camera_file_is_refused_in_one_sentence(content: str | bytes) -> None:
    with pytest.raises(InputError):
        parse_cameras(content)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yml cannot be read"):
        load_cameras(tmp_path / "none.yml")


def test_names_are_compared_in_the_normal_form() -> None:
    with pytest.raises(InputError, match="there twice"):
        parse_cameras("cameras:\n  Süd: {source: a}\n  Su\u0308d: {source: b}\n")
    assert list(parse_cameras("cameras:\n  Su\u0308d: {source: b}\n").cameras) == ["Süd"]
    assert list(parse_cameras("cameras:\n  कैमरा: {source: b}\n").cameras) == ["कैमरा"]


def test_zones_take_the_camera_s_units() -> None:
    triangle = [[0, 0], [1, 0], [1, 1]]
    settings = CameraSettings.model_validate({"units": "fractions", "zones": [{"name": "a", "polygon": triangle}]})
    assert settings.zones[0].units == "fractions"


def test_zones_of_a_file_take_the_camera_s_units() -> None:
    file = parse_cameras("cameras: {a: {units: fractions, zones: [{name: b, polygon: [[0, 0], [1, 0], [1, 1]]}]}}")
    assert file.cameras["a"].zones[0].units == "fractions"


def test_cameras_take_settings_of_another_one() -> None:
    file = parse_cameras(
        "cameras:\n"
        "  gate: &usual {source: a, fps: 2, limits: [{people: 5}]}\n"
        "  hall: {<<: *usual, source: b}\n"
        "  yard:\n    <<: [{fps: 3}, *usual]\n    source: c\n"
    )
    found = {name: (one.source, one.fps, one.limits[0].people) for name, one in file.cameras.items()}
    assert found == {"gate": ("a", 2, 5), "hall": ("b", 2, 5), "yard": ("c", 3, 5)}
    with pytest.raises(InputError, match="line 2: << takes the keys"):
        parse_cameras("cameras:\n  gate: {<<: 3, source: a}\n")
    with pytest.raises(InputError, match=r'line 3: The key "fsp" is not known'):
        parse_cameras("cameras:\n  gate:\n    <<: {fsp: 3}\n    source: a\n")


def test_ground_in_the_wrong_units_is_refused() -> None:
    ground = {"points": [(0.2, 0.3), (0.8, 0.3), (1, 1), (0, 1)], "rectangle": (10, 6)}
    check_camera(CameraSettings.model_validate({"units": "fractions", "ground": ground}))
    with pytest.raises(CameraError, match="give the camera units: fractions"):
        check_camera(CameraSettings.model_validate({"units": "pixels", "ground": ground}))


def test_units_that_cannot_be_known_are_asked_for() -> None:
    with pytest.raises(CameraError, match="units of the mask"):
        check_camera(CameraSettings(mask=[[(0, 0), (1, 0), (1, 1)]]))


def test_a_density_limit_needs_ground() -> None:
    with pytest.raises(CameraError, match="needs the camera's ground") as caught:
        check_camera(CameraSettings(limits=[Limit(per_square_metre=4)]))
    assert caught.value.where == ("limits", 0, "per_square_metre")


def test_a_secret_that_is_not_set_is_refused() -> None:
    file = parse_cameras(FILE)
    assert file.secret("HOOK_SECRET", {"HOOK_SECRET": "s"}) == "s"
    assert file.secret(None, {}) is None
    with pytest.raises(InputError, match="HOOK_SECRET, which is not set"):
        file.secret("HOOK_SECRET", {})
