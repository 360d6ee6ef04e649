import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.toy import HEADS, toy_artifact, toy_model

from uepnet.model.artifact import (
    FILE,
    FORMAT,
    Artifact,
    Calibration,
    Expectation,
    Head,
    ModelFile,
    Normalisation,
    Parity,
    Tiling,
    model_directory,
)
from uepnet.model.errors import ArtifactError
from uepnet.model.runtime import Runtime

FULL = toy_artifact(
    "expectation",
    expectation=Expectation(temperature=1.1, floor=0.2),
    scale=0.75,
    mirror=True,
    calibration=Calibration(level=0.9, low=-0.1, high=0.3, offset=1.0, power=0.7, images=40),
    files={
        "fp32": ModelFile(
            file="model.fp32.onnx",
            sha256="0" * 64,
            parity=Parity(tiles=3, class_agreement=1.0, count_difference=0.1, worst_tile=0.2, speed=1.0),
        )
    },
    training={"dataset": "shanghaitech-a", "seed": 3, "rates": [0.1, 1e-7], "nested": {"why": None}},
    metrics={"mae": 0.1 + 0.2},
)


def test_saving_and_loading_gives_the_same_record_and_the_same_bytes(tmp_path: Path) -> None:
    FULL.save(tmp_path)
    loaded = Artifact.load(tmp_path)
    assert loaded == FULL
    assert loaded.to_json() == (tmp_path / FILE).read_text()
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=40, unique=True), st.floats(1e-6, 4))
def test_floats_survive_the_round_trip_to_the_last_bit(borders: list[float], scale: float) -> None:
    rising = tuple(sorted(borders))
    head = Head(borders=rising, proxies=(0.0, *rising))
    artifact = toy_artifact(
        heads=(head,),
        t_max=rising[-1],
        scale=scale,
        layout={"encoder": "vgg16", "width": 8, "classes": (len(head.proxies),)},
    )
    assert Artifact.from_json(artifact.to_json()) == artifact


def test_saving_replaces_an_older_file(tmp_path: Path) -> None:
    toy_artifact(version="1").save(tmp_path)
    toy_artifact(version="2").save(tmp_path)
    assert Artifact.load(tmp_path).version == "2"


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        FULL.version = "2"  # type: ignore[misc]


def test_the_inference_hash_follows_what_the_graph_depends_on_and_nothing_else() -> None:
    other = FULL.model_copy(update={"calibration": None, "version": "9", "files": {}, "mirror": False})
    assert other.inference_hash == FULL.inference_hash
    for change in (
        {"decoding": "argmax"},
        {"heads": HEADS[::-1]},
        {"normalisation": Normalisation(mean=(0, 0, 0), std=(1, 1, 1))},
        {"expectation": Expectation(temperature=1.2, floor=0.2)},
    ):
        assert FULL.model_copy(update=change).inference_hash != FULL.inference_hash


def test_padding_is_the_mean_colour_rounded_into_a_byte() -> None:
    assert Normalisation(mean=(123.675, 116.28, 103.53), std=(1, 1, 1)).padding == (124, 116, 104)
    assert Normalisation(mean=(-3, 300, 0.4), std=(1, 1, 1)).padding == (0, 255, 0)


@given(st.floats(0, 1e5), st.floats(-2, 2), st.floats(0, 2), st.floats(0.01, 100), st.floats(0, 1))
def test_a_range_holds_its_count_and_never_goes_below_zero(
    count: float, low: float, width: float, offset: float, power: float
) -> None:
    calibration = Calibration(level=0.9, low=low, high=low + width, offset=offset, power=power, images=5)
    bottom, top = calibration.range(count)
    assert 0 <= bottom <= count <= top


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(FULL.to_json()) | fields)


def head(borders: list[float], proxies: list[float]) -> list[dict[str, Any]]:
    second = HEADS[1].model_dump(mode="json")
    return [{"borders": borders, "proxies": proxies}, second]


CONTRADICTIONS = {
    "unsorted borders": (
        changed(heads=head([0.1, 0.5, 0.4, 3], [0, 0.2, 0.5, 1, 4])),
        "heads.0: borders must increase",
    ),
    "equal borders": (changed(heads=head([0.1, 0.5, 0.5, 3], [0, 0.2, 0.5, 1, 4])), "heads.0: borders must increase"),
    "a negative border": (changed(heads=head([-1, 1, 2, 3], [0, 0.5, 1, 2, 4])), "heads.0: borders must be positive"),
    "too few proxies": (changed(heads=head([0.1, 0.5, 1, 3], [0, 0.2, 0.5])), "heads.0: there must be one proxy more"),
    "a background that counts": (
        changed(heads=head([0.1, 0.5, 1, 3], [0.05, 0.2, 0.5, 1, 4])),
        "heads.0: the first proxy must be 0",
    ),
    "a proxy outside its interval": (
        changed(heads=head([0.1, 0.5, 1, 3], [0, 0.2, 2, 1, 4])),
        r"heads.0: proxies[2] = 2 lies outside its interval [0.5, 1)",
    ),
    "no heads": (changed(heads=[]), "heads must not be empty"),
    "heads that do not fit the layout": (changed(heads=[HEADS[0].model_dump(mode="json")]), "layout.classes"),
    "heads of a regression": (changed(decoding="regression"), "heads must be empty"),
    "t_max below a border": (changed(t_max=1.0), "t_max 1 must be at least the last border 4"),
    "no standard deviation": (
        changed(normalisation={"mean": [0, 0, 0], "std": [1, 0, 1]}),
        "normalisation: std must be positive",
    ),
    "a halo that eats its tile": (changed(tiling={"tile": 64, "halo": 32}), "tiling: a halo of 32 leaves no cells"),
    "a halo whose cells eat its tile": (
        changed(
            layout={"encoder": "vgg16", "width": 512, "classes": [5, 6], "cell": 32}, tiling={"tile": 128, "halo": 40}
        ),
        "tiling: a halo of 40, rounded up to cells of 32, leaves no cells",
    ),
    "an odd tile": (changed(tiling={"tile": 100, "halo": 0}), "tiling.tile: "),
    "a range upside down": (
        changed(calibration={"level": 0.9, "low": 1, "high": 0, "offset": 1, "power": 1, "images": 2}),
        "calibration: low must not exceed high",
    ),
    "an unknown decoding": (changed(decoding="guess"), "decoding: "),
    "a file elsewhere": (
        changed(files={"fp32": {"file": "../model.onnx", "sha256": "0" * 64}}),
        "files.fp32.file: ",
    ),
    "a short hash": (changed(files={"fp32": {"file": "model.onnx", "sha256": "0"}}), "files.fp32.sha256: "),
    "not a number": (changed(t_max=float("nan")), "t_max: "),
    "an unknown field": (changed(colour="red"), "colour: "),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_is_one_sentence_that_names_the_field(name: str) -> None:
    text, complaint = CONTRADICTIONS[name]
    with pytest.raises(ArtifactError) as caught:
        Artifact.from_json(text, "artifact.json")
    message = str(caught.value)
    assert complaint in message
    assert message.startswith("artifact.json: ") and message.endswith(".") and "\n" not in message


@pytest.mark.parametrize("field", ["version", "layout", "normalisation", "heads", "t_max"])
def test_a_missing_field_is_named(field: str) -> None:
    fields = json.loads(FULL.to_json())
    del fields[field]
    with pytest.raises(ArtifactError, match=f"{field}: it is missing"):
        Artifact.from_json(json.dumps(fields))


def test_every_truncation_of_the_file_is_refused(tmp_path: Path) -> None:
    text = FULL.to_json().rstrip()
    for length in range(0, len(text), 7):
        (tmp_path / FILE).write_text(text[:length])
        with pytest.raises(ArtifactError, match="is not complete JSON"):
            Artifact.load(tmp_path)


def test_a_newer_format_asks_for_an_upgrade_before_it_looks_at_fields() -> None:
    with pytest.raises(ArtifactError, match=rf"format is {FORMAT + 1}; upgrade uepnet"):
        Artifact.from_json(json.dumps({"format": FORMAT + 1, "new": "fields"}))


@pytest.mark.parametrize("text", ["{}", '{"format": "one"}', '{"format": 0}', '{"format": true}'])
def test_an_unknown_format_says_which_one_is_read(text: str) -> None:
    with pytest.raises(ArtifactError, match="this uepnet reads formats 1 and 2"):
        Artifact.from_json(text)


def test_what_is_no_object_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="must contain one JSON object"):
        Artifact.from_json("[]")
    (tmp_path / FILE).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArtifactError, match="cannot be read"):
        Artifact.load(tmp_path)


def test_a_folder_without_an_artifact_is_no_model_directory(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"is not a model directory: it has no artifact\.json"):
        Artifact.load(tmp_path)


def test_a_tiling_is_checked_on_its_own() -> None:
    assert Tiling(tile=1024, halo=496).halo == 496
    with pytest.raises(ValidationError, match="leaves no cells"):
        Tiling(tile=1024, halo=504)


def test_format_1_still_loads_and_fits_its_graphs() -> None:
    """The bundled model's file as format 1 wrote it: without layout.decoder."""
    fields = json.loads(toy_artifact().to_json())
    del fields["layout"]["decoder"]
    old = Artifact.from_json(json.dumps(fields | {"format": 1}))
    assert old.layout.decoder == "full" and old.format == FORMAT
    assert old.inference_hash == toy_artifact().inference_hash
    lean = old.model_copy(update={"layout": old.layout.model_copy(update={"decoder": "lean"})})
    assert lean.inference_hash != old.inference_hash


def test_a_run_that_has_a_model_directory_means_that_directory(tmp_path: Path) -> None:
    run = tmp_path / "run"
    toy_model(run / "model", version="inner")
    assert model_directory(run) == run / "model"
    assert model_directory(run / "model") == run / "model"
    assert Runtime(run, device="cpu").artifact.version == "inner"
