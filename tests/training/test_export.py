import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file
from support.paths import ROOT
from torch import nn
from torch.nn import functional

from uepnet.cli import main
from uepnet.model.artifact import Artifact, Expectation, Head, Layout, Normalisation, Scales, Tiling
from uepnet.model.errors import DataError, InputError, ModelError
from uepnet.model.intervals import classify
from uepnet.model.network import UEPNet, build
from uepnet.model.runtime import Runtime
from uepnet.model.shapes import ShapePolicy
from uepnet.training.export import _decoded_by, check_half_range, check_occupied, export, prove
from uepnet.training.half_precision import half_difference
from uepnet.training.onnx_graph import Half, folded, to_onnx
from uepnet.training.parity import Probe, compare, cut_probes
from uepnet.training.prepare import load_network
from uepnet.training.workbench import Reference, Workbench

BORDERS = (0.00016, *(0.3 * step for step in range(1, 11)))
PROXIES = (0.0, *((low + high) / 2 for low, high in zip(BORDERS, (*BORDERS[1:], 3.5), strict=True)))
BORDERS_1 = (BORDERS[0], *PROXIES[1:])
PROXIES_1 = (0.0, *((low + high) / 2 for low, high in zip(BORDERS_1, (*BORDERS_1[1:], 3.6), strict=True)))


def picture(rng: np.random.Generator, width: int, height: int) -> NDArray[np.uint8]:
    """Soft patches from black to white; a cell's brightness is its count."""
    coarse = rng.integers(0, 256, (height // 24 + 1, width // 24 + 1), dtype=np.uint8)
    coarse[rng.random(coarse.shape) < 0.3] = 0
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)
    return np.repeat(np.asarray(image)[..., None], 3, axis=2)


def cell_counts(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    height, width = image.shape[:2]
    cells = image[..., 0].reshape(height // 8, 8, width // 8, 8).mean((1, 3))
    return (np.clip(cells - 20, 0, None) / 235 * 4.2).astype(np.float32)


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    heads = (Head(borders=BORDERS, proxies=PROXIES), Head(borders=BORDERS_1, proxies=PROXIES_1))
    return Artifact(
        name="patches",
        version="1",
        layout=Layout(encoder="efficientnet-lite0", width=16, classes=tuple(len(head.proxies) for head in heads)),
        normalisation=Normalisation(mean=(127, 127, 127), std=(128, 128, 128)),
        heads=heads,
        t_max=4.2,
        tiling=Tiling(tile=256, halo=32),
        decoding="expectation",
        expectation=Expectation(temperature=1.5, floor=0.2),
    )


@pytest.fixture(scope="module")
def run(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network trained just long enough to use many classes: random weights would prove nothing."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    network = build(artifact.layout)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 0.1
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(160):
        images = [picture(rng, 64, 64) for _ in range(4)]
        counts = np.stack([cell_counts(image) for image in images])
        x = (torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() - 127) / 128
        loss = torch.zeros(())
        for scores, head in zip(network(x), artifact.heads, strict=True):
            classes = torch.from_numpy(classify(counts, head.borders).astype(np.int64))
            loss = loss + functional.cross_entropy(scores, classes)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    folder = tmp_path_factory.mktemp("runs") / "patches"
    folder.mkdir()
    artifact.save(folder)
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, folder / "weights.safetensors")
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(1)
    for number in range(6):
        Image.fromarray(picture(rng, 200 + 40 * number, 170)).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def probes(images: Path) -> list[Probe]:
    return cut_probes(sorted(images.iterdir()), 8, ((96, 96), (192, 128), (256, 160)), seed=0)


@pytest.fixture(scope="module")
def model(run: Path, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "patches"
    command = ["export", str(run), "--out", str(out), "--precision", "fp32,fp16", "--images", str(images)]
    assert main(command) == 0
    return out


def test_tiles_are_compared_at_the_size_at_which_images_are_counted(images: Path) -> None:
    (first,) = images.glob("0.png")
    (plain,) = cut_probes([first], 1, ((1024, 1024),), seed=0)
    (larger,) = cut_probes([first], 1, ((1024, 1024),), seed=0, scale=2.0)
    assert plain.pixels.shape == (160, 192, 3)  # of 200x170
    assert larger.pixels.shape == (320, 384, 3)


def test_an_export_records_what_it_measured(model: Path) -> None:
    files = Artifact.load(model).files
    assert set(files) == {"fp32", "fp16"}
    fp32, fp16 = files["fp32"].parity, files["fp16"].parity
    assert fp32 is not None and fp32.count_difference <= 0.001 and fp32.class_agreement > 0.999
    assert fp16 is not None and fp16.count_difference <= 0.005 and fp16.worst_tile >= fp16.count_difference
    assert fp32.tiles == 16 and fp32.speed == 1 and fp16.speed > 0
    assert sorted(path.name for path in model.iterdir()) == ["artifact.json", "model.fp16.onnx", "model.fp32.onnx"]
    assert [path.name for path in model.parent.iterdir()] == ["patches"]  # no workshop is left


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_an_exported_file_holds_its_metadata_and_no_trace_of_the_machine(model: Path, precision: str) -> None:
    content = (model / f"model.{precision}.onnx").read_bytes()
    graph = onnx.load_from_string(content)
    properties = {entry.key: entry.value for entry in graph.metadata_props}
    artifact = Artifact.load(model)
    assert properties == {"name": "patches", "version": "1", "inference_hash": artifact.inference_hash}
    assert b"stack_trace" not in content and str(ROOT).encode() not in content
    assert "BatchNormalization" not in {node.op_type for node in graph.graph.node}
    names = [node.name for node in graph.graph.node if node.op_type == "Conv"]
    assert "encoder.stages.1.0.depthwise.conv" in names and len(set(names)) == len(names)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_any_batch_height_and_width_runs(model: Path, run: Path, precision: str) -> None:
    rng = np.random.default_rng(3)
    tiles = [picture(rng, 160, 96) for _ in range(3)]
    runtime = Runtime(model, precision=precision)
    runtime.policy = ShapePolicy((96, 160), (1, 2, 4))
    artifact = Artifact.load(run)
    network = load_network(run, artifact)
    probes = [Probe(str(index), tile) for index, tile in enumerate(tiles)]
    truth = Reference.of(network, artifact, probes).maps
    assert compare(probes, truth, runtime.run(tiles), artifact).count_difference < 0.005


def test_counts_and_variance_follow_the_definition(model: Path, run: Path) -> None:
    """Mean over the heads of E[proxy] and Var[proxy] at the temperature; nothing where background is near certain."""
    tile = picture(np.random.default_rng(4), 128, 96)
    (maps,) = Runtime(model, precision="fp32").run([tile])
    artifact = Artifact.load(run)
    network = load_network(run, artifact)
    x = (torch.from_numpy(tile)[None].permute(0, 3, 1, 2).float() - 127) / 128
    with torch.inference_mode():
        logits = [scores[0].double().numpy() for scores in network(x)]
    means, variances, backgrounds = [], [], []
    for scores, head in zip(logits, artifact.heads, strict=True):
        chance = np.exp(scores / 1.5) / np.exp(scores / 1.5).sum(0)
        proxies = np.array(head.proxies)[:, None, None]
        mean = (chance * proxies).sum(0)
        means.append(mean)
        variances.append((chance * (proxies - mean) ** 2).sum(0))
        backgrounds.append(chance[0])
    occupied = np.mean(backgrounds, 0) <= 1 - 0.2
    assert 0 < occupied.sum() < occupied.size
    np.testing.assert_allclose(maps.counts, np.mean(means, 0) * occupied, atol=1e-4)
    np.testing.assert_allclose(maps.variance, np.mean(variances, 0) * occupied, atol=1e-3)
    for classes, scores in zip(maps.classes, logits, strict=True):
        assert (classes == scores.argmax(0)).mean() > 0.999


def test_an_export_by_argmax_counts_as_argmax_does_at_serving_time(artifact: Artifact) -> None:
    chosen = artifact.model_copy(update={"scales": Scales(first_side=256, crowded=0.2, beside=0.1), "scale": 1.5})
    assert _decoded_by(chosen, "argmax") == chosen.read_by("argmax")
    assert _decoded_by(chosen, "argmax").scales is None


@pytest.mark.parametrize("decoding", ["argmax", "regression"])
def test_other_decodings_export_too(artifact: Artifact, tmp_path: Path, decoding: str) -> None:
    changes: dict[str, object] = {"decoding": decoding}
    if decoding == "regression":
        changes |= {"heads": (), "layout": artifact.layout.model_copy(update={"classes": (1,)})}
    other = Artifact.model_validate(artifact.model_dump() | changes)
    torch.manual_seed(1)
    network = build(other.layout).eval()
    probes = [Probe("p", picture(np.random.default_rng(5), 96, 64))]
    difference = Workbench(tmp_path, other).difference(
        to_onnx(folded(network), other), "fp32", Reference.of(network, other, probes)
    )
    assert difference.count_difference < 0.001


# Refusals


def test_a_graph_that_counts_differently_is_refused_with_the_place(
    run: Path, model: Path, probes: list[Probe], tmp_path: Path
) -> None:
    artifact = Artifact.load(run)
    network = load_network(run, artifact)
    with torch.no_grad():
        network.heads[0][2].bias[5] += 1.0  # type: ignore[index, union-attr, operator]
    reference = Reference.of(network, artifact, probes)
    exported = onnx.load(model / "model.fp32.onnx")
    with pytest.raises(ModelError, match=r"fp32 was refused: .* the limit is 0\.1%; worst: \d\.png at .* counts"):
        prove(exported, "fp32", bench=Workbench(tmp_path, artifact), reference=reference, fp32=exported)


def test_a_network_that_uses_few_classes_proves_nothing(artifact: Artifact, probes: list[Probe]) -> None:
    network = build(artifact.layout).eval()
    with torch.no_grad():
        for head in network.heads:
            head[2].bias[0] = 1e3  # type: ignore[index, operator]
    reference = Reference.of(network, artifact, probes)
    with pytest.raises(ModelError, match=r"on the 8 tiles have too few classes for a comparison \(1; .*--unproven"):
        check_occupied(reference, artifact, unproven=False)
    check_occupied(reference, artifact, unproven=True)


def test_activations_beyond_fp16_are_refused_by_layer(run: Path, probes: list[Probe]) -> None:
    artifact = Artifact.load(run)
    network = load_network(run, artifact)
    assert isinstance(network, UEPNet)
    check_half_range(network, artifact, probes)
    with torch.no_grad():
        network.heads[0][0].weight *= 1e6  # type: ignore[index, operator]
    with pytest.raises(ModelError, match=r"fp16 was refused: heads\.0\.\d reaches"):
        check_half_range(network, artifact, probes)


def test_fp16_is_proven_by_its_arithmetic_and_not_by_a_cpu_that_computes_the_file_in_fp32(
    run: Path, probes: list[Probe], tmp_path: Path
) -> None:
    """A large value that all classes share changes no probability in fp32, and leaves no digits for them in fp16."""
    shutil.copytree(run, tmp_path / "run")
    weights = load_file(run / "weights.safetensors")
    for head in range(2):
        weights[f"heads.{head}.0.bias"][0] = 16000.0
        weights[f"heads.{head}.2.weight"][:, 0] = 1.0
    save_file(weights, tmp_path / "run" / "weights.safetensors")
    done = export(tmp_path / "run", tmp_path / "out", ["fp32", "fp16"], probes=probes, unproven=True)
    assert set(done.artifact.files) == {"fp32"}
    assert "fp16 was refused: its counts differ" in done.refused["fp16"]

    artifact = Artifact.load(tmp_path / "run")
    network = folded(load_network(tmp_path / "run", artifact))
    reference = Reference.of(network, artifact, probes)
    on_this_cpu = Workbench(tmp_path, artifact).difference(to_onnx(Half(network), artifact), "fp16", reference)
    assert on_this_cpu.count_difference < 0.005


def test_fp16_that_answers_no_numbers_is_refused(run: Path, probes: list[Probe]) -> None:
    artifact = Artifact.load(run)
    network = folded(load_network(run, artifact))
    reference = Reference.of(network, artifact, probes[:1])
    with torch.no_grad():
        network.heads[0][2].bias += 7e4  # type: ignore[index, union-attr, operator]
    with pytest.raises(ModelError, match="fp16 was refused: A count is not a finite number"):
        half_difference(network, artifact, probes[:1], reference.maps)


def test_fp16_arithmetic_is_close_to_fp32_but_not_the_same(run: Path, probes: list[Probe]) -> None:
    artifact = Artifact.load(run)
    network = folded(load_network(run, artifact))
    before = [value.clone() for value in network.parameters()]
    difference = half_difference(network, artifact, probes, Reference.of(network, artifact, probes).maps)
    assert 1e-6 < difference.cell_difference < 0.005
    assert all(torch.equal(one, other) for one, other in zip(before, network.parameters(), strict=True))


def test_a_refused_precision_is_left_out_and_the_rest_is_kept(
    run: Path, probes: list[Probe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uepnet.training.export.MAX_HALF", 0.001)
    done = export(run, tmp_path / "out", ["fp32", "fp16"], probes=probes)
    assert set(done.refused) == {"fp16"} and set(done.artifact.files) == {"fp32"}
    assert Runtime(tmp_path / "out").precision == "fp32"
    with pytest.raises(DataError, match="is not empty"):
        export(run, tmp_path / "out", ["fp32"], probes=probes)


def test_a_run_without_weights_says_so(artifact: Artifact, probes: list[Probe], tmp_path: Path) -> None:
    artifact.save(tmp_path)
    with pytest.raises(ModelError, match=r"weights\.safetensors does not hold the weights"):
        export(tmp_path, tmp_path / "out", ["fp32"], probes=probes)


def test_the_command_refuses_what_it_does_not_know(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), "--out", str(tmp_path / "m"), "--precision", "fp64"]) == 2
    assert "takes fp32, fp16, int8, not 'fp64'" in capsys.readouterr().err
    assert main(["export", str(run), "--out", str(tmp_path / "m")]) == 2  # no config.json: whose images?
    assert "give a folder of images with --images" in capsys.readouterr().err


# int8


def test_int8_is_within_its_limit_or_refused(
    run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("uepnet.training.quantise.STEPS", ())  # one attempt, without a search
    out = tmp_path / "int8"
    command = ["export", str(run), "--out", str(out), "--precision", "fp32,int8", "--images", str(images)]
    code = main(command)
    text = capsys.readouterr().out
    files = json.loads((out / "artifact.json").read_text())["files"]
    if code == 1:
        assert "int8 was refused: its counts differ" in text and set(files) == {"fp32"}
    else:
        assert code == 0 and files["int8"]["parity"]["count_difference"] <= 0.02
        kinds = {node.op_type for node in onnx.load(out / "model.int8.onnx").graph.node}
        assert {"QuantizeLinear", "DequantizeLinear"} <= kinds


# Decoding


def test_a_run_is_exported_with_the_decoding_of_the_paper(
    run: Path, probes: list[Probe], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = export(run, tmp_path / "out", ["fp32"], probes=probes, decoding="argmax")
    assert "not proven" not in caplog.text  # proving them is what the export does
    assert done.artifact.decoding == "argmax" and done.artifact.calibration is None
    graph = onnx.load(tmp_path / "out" / "model.fp32.onnx").graph
    assert [output.name for output in graph.output] == ["classes_0", "classes_1"]
    assert Artifact.load(run).decoding == "expectation"  # the run is as it was
    with pytest.raises(InputError, match="cannot be decoded by regression"):
        export(run, tmp_path / "other", ["fp32"], probes=probes, decoding="regression")
