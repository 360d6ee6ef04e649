"""Settings are checked where they come from: flags, a YAML file, and the config.json of older versions."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from support.scenes import release, starting_weights

from uepnet.cli import main
from uepnet.commands import train as command
from uepnet.commands.shared.training_options import add_settings
from uepnet.model.errors import InputError
from uepnet.training.config import PRESETS, Config
from uepnet.training.config_errors import flag
from uepnet.training.train import train

# Every key that a config.json of the version before this class had, with values that are no defaults where it can be.
BEFORE: dict[str, Any] = {
    "data": [["shanghaitech-a", "crowds"], ["csv", "mine"]],
    "repeat": [3, 1],
    "train_on": "all",
    "fold": 0,
    "empty": "no-people",
    "empty_share": 0.2,
    "degraded": "copies",
    "degraded_share": 0.3,
    "degrade": 0.2,
    "left_out": ["shanghaitech-a/IMG_2.jpg"],
    "kernel": "adaptive:6:20",
    "encoder": "efficientnet-lite2",
    "decoder": "lean",
    "width": 96,
    "init": "lite2.pth",
    "freeze": 3,
    "fixed_norms": True,
    "intervals": 20,
    "partition": "log",
    "proxies": "median",
    "heads": "single",
    "knee": 0.4,
    "top_interval": "filled",
    "cell": 16,
    "target": "regression",
    "crop": 384,
    "scale": [0.8, 2.2],
    "input_scale": 1.2,
    "mirror": False,
    "jitter": 0.4,
    "optimiser": "sgd",
    "lr": 0.0002,
    "encoder_rate": 0.5,
    "weight_decay": 0.03,
    "schedule": "plateau",
    "warm_up": 50,
    "steps": 2700,
    "batch": 4,
    "count_loss": 0.5,
    "clip": 2.5,
    "average": 0.995,
    "keep": "best",
    "seed": 114,
    "device": "cuda:1",
    "workers": 2,
    "threads": 2,
    "bfloat16": True,
    "compile": True,
    "validate_every": 3000,
    "validate_images": 20,
    "checkpoint_seconds": 180.0,
}
# Fields that version 0.1 did not have.
SINCE_THE_FIRST = ("train_on", "degraded", "degraded_share", "degrade", "left_out", "decoder", "top_interval")


def stored(folder: Path, values: object) -> Path:
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def parsed(line: str) -> Config:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return command._config(parser.parse_args(line.split()))


def test_a_config_of_the_version_before_reads_as_it_was_written(tmp_path: Path) -> None:
    config = Config.read(stored(tmp_path, BEFORE))
    found = json.loads(config.model_dump_json())
    assert {name: found[name] for name in BEFORE if name != "bfloat16"} | {"bfloat16": True} == BEFORE
    assert config.precision == "bfloat16"
    assert Config.read(stored(tmp_path, BEFORE | {"bfloat16": False})).precision == "auto"
    for name in set(Config.model_fields) - set(BEFORE) - {"precision"}:  # what was fixed then is the default now
        assert getattr(config, name) == Config.model_fields[name].default
    assert (config.momentum, config.cut_margin, config.t0, config.tile, config.halo) == (0.9, 2, 0.00016, 1664, 160)
    config.write(tmp_path)
    assert Config.read(tmp_path) == config


def test_a_config_of_the_first_version_gets_the_defaults_of_what_it_lacks(tmp_path: Path) -> None:
    config = Config.read(stored(tmp_path, {k: v for k, v in BEFORE.items() if k not in SINCE_THE_FIRST}))
    for name in SINCE_THE_FIRST:
        assert getattr(config, name) == Config.model_fields[name].default
    assert config.seed == 114


def test_a_run_of_the_first_version_resumes(tmp_path: Path) -> None:
    root = release(tmp_path / "crowds", images=24)
    weights = starting_weights(tmp_path / "start.safetensors")
    values = {"init": str(weights), "width": 16, "intervals": 6, "crop": 64, "batch": 2, "steps": 4, "threads": 1}
    config = Config.of({"data": (("shanghaitech-a", str(root)),), "validate_images": 2, **values})
    steps: list[int] = []
    train(tmp_path / "run", config, watch=lambda seen: steps.append(seen.step), stop=lambda: len(steps) >= 2)
    now = json.loads(config.model_dump_json()) | {"bfloat16": False}
    old = {name: now[name] for name in BEFORE if name not in SINCE_THE_FIRST}
    stored(tmp_path / "run", old)
    assert main(["train", "--resume", str(tmp_path / "run"), "--quiet"]) == 0
    assert (tmp_path / "run" / "weights.safetensors").is_file()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (BEFORE | {"schedul": "cosine"}, "There is no setting 'schedul': did you mean 'schedule'?"),
        (BEFORE | {"schedule": "plateu"}, "schedule must be cosine or plateau, not 'plateu'."),
        (BEFORE | {"steps": 0}, "steps must be at least 1, not 0."),
        ({"steps": 1}, "The setting data is missing."),
        ([1], "must hold one JSON object."),
    ],
)
def test_a_broken_config_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: object, words: str
) -> None:
    assert main(["train", "--resume", str(stored(tmp_path, values))]) == 2
    error = capsys.readouterr().err
    assert error == f"uepnet: {tmp_path / 'config.json'}{':' if isinstance(values, dict) else ''} {words}\n"


def test_half_a_config_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"data": [[')
    with pytest.raises(InputError, match=r"config\.json cannot be read"):
        Config.read(tmp_path)


def test_a_changed_copy_is_checked() -> None:
    config = Config(data=(("csv", "here"),))
    assert config.changed(heads="single").heads == "single"
    with pytest.raises(InputError, match="steps must be at least 1"):
        config.changed(steps=0)


def test_every_setting_is_a_flag_with_its_choices_unit_and_defaults() -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser)
    flags = {action.dest: action for action in parser._actions}
    assert set(Config.model_fields) - set(flags) == {"data", "fold", "left_out"}
    assert flags["schedule"].choices == ("cosine", "plateau")
    assert flags["checkpoint_seconds"].metavar == "SECONDS"
    assert "default: 0.8 2.2; paper: 0.3 1.3" in str(flags["scale"].help)
    for name, field in Config.model_fields.items():
        if name in flags:
            assert flag(name) in flags[name].option_strings
            assert flags[name].choices or flags[name].nargs == 0 or flags[name].metavar, f"{name} shows no unit"
            assert field.description


def test_presets_are_valid_and_set_nothing_that_is_no_setting() -> None:
    for preset in PRESETS.values():
        assert Config.of({"data": (("csv", "here"),)} | preset)


def test_a_file_overrides_the_preset_and_a_flag_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "preset: paper\ndataset: csv,mall\nroot: here,there\nsteps: 500\nweight-decay: 1e-3\nscale: [0.5, 2]\n"
    )
    config = parsed(f"--config {file} --steps 700 --no-mirror")
    assert config.data == (("csv", str(Path("here").resolve())), ("mall", str(Path("there").resolve())))
    assert (config.encoder, config.steps, config.weight_decay, config.scale) == ("vgg16", 700, 1e-3, (0.5, 2.0))
    assert not config.mirror


def test_the_config_of_a_run_is_a_file_of_settings(tmp_path: Path) -> None:
    config = parsed("--dataset shanghaitech-a --root here --steps 50 --seed 3")
    config.write(tmp_path)
    assert config.left_out
    assert parsed(f"--config {tmp_path / 'config.json'}") == config
    assert parsed(f"--config {tmp_path / 'config.json'} --seed 4") == config.changed(seed=4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step: 5", "There is no setting 'step': did you mean 'steps'?"),
        ("steps: many", "steps must be a whole number"),
        ("preset: slow", "preset is fast or paper, not 'slow'."),
        ("dataset: [csv]", "dataset must be a text"),
        ("[1, 2]", "must hold settings"),
        ("steps: [1", "is not valid YAML (line 2)."),
    ],
)
def test_a_wrong_file_of_settings_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (tmp_path / "run.yaml").write_text(text + "\n")
    line = ["train", "--config", str(tmp_path / "run.yaml"), "--dataset", "csv", "--root", "x"]
    assert main([*line, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert words in error and str(tmp_path / "run.yaml") in error and error.count("\n") == 1
