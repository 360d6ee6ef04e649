"""A tiny but real model directory, for tests where the network's quality does not matter.

A cell's count is its mean grey value / 255 * 5: black counts nothing, white five people a cell. The graph
keeps the contract (inputs, outputs, metadata, hashes) and looks at each cell alone: tiling changes nothing.
"""

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from uepnet.model.artifact import (
    Artifact,
    Decoding,
    Head,
    Layout,
    ModelFile,
    Normalisation,
    Precision,
    Tiling,
)
from uepnet.model.decode import Maps
from uepnet.model.intervals import classify
from uepnet.model.tiling import Tile

WHITE_COUNT = 5.0  # people in a white cell
HEADS = (
    Head(borders=(0.00016, 0.5, 1.5, 3.0), proxies=(0.0, 0.25, 1.0, 2.0, 4.0)),
    Head(borders=(0.00016, 0.25, 1.0, 2.0, 4.0), proxies=(0.0, 0.125, 0.6, 1.5, 3.0, 4.5)),
)


def toy_artifact(decoding: Decoding = "argmax", version: str = "1", **fields: Any) -> Artifact:
    """The toy's artifact without files; `fields` override any other field (tiling, scale, calibration...)."""
    heads = () if decoding == "regression" else HEADS
    classes = (1,) if decoding == "regression" else tuple(len(head.proxies) for head in heads)
    given: dict[str, Any] = {
        "name": "toy",
        "version": version,
        "layout": Layout(encoder="efficientnet-lite0", width=8, classes=classes),
        "normalisation": Normalisation(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375)),
        "heads": heads,
        "t_max": 7.0,
        "tiling": Tiling(tile=256, halo=32),
        "decoding": decoding,
    }
    return Artifact(**(given | fields))


def toy_model(
    directory: Path,
    decoding: Decoding = "argmax",
    version: str = "1",
    precisions: tuple[Precision, ...] = ("fp32",),
    spoilt: bool = False,
    **fields: Any,
) -> Path:
    """Write the model directory and return it; every precision gets the same float graph."""
    directory.mkdir(parents=True, exist_ok=True)
    artifact = toy_artifact(decoding, version, **fields)
    files = {}
    for precision in precisions:
        content = toy_graph(artifact, math.nan if spoilt else WHITE_COUNT).SerializeToString()
        path = directory / f"model.{precision}.onnx"
        path.write_bytes(content)
        files[precision] = ModelFile(file=path.name, sha256=hashlib.sha256(content).hexdigest())
    artifact.model_copy(update={"files": files}).save(directory)
    return directory


def toy_graph(artifact: Artifact, white_count: float = WHITE_COUNT) -> onnx.ModelProto:
    """tiles [n, h, w, 3] -> grey [n, h/cell, w/cell] -> counts; a class is the number of borders <= the count."""
    cell = artifact.cell
    nodes = [
        helper.make_node("Cast", ["tiles"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["pixels"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("ReduceMean", ["planes"], ["grey"], axes=[1], keepdims=1),
        helper.make_node("AveragePool", ["grey"], ["cells"], kernel_shape=[cell, cell], strides=[cell, cell]),
        helper.make_node("Squeeze", ["cells", "axis_1"], ["brightness"]),
        helper.make_node("Mul", ["brightness", "people"], ["counts"]),
        helper.make_node("Unsqueeze", ["counts", "axis_3"], ["column"]),
    ]
    constants = [
        helper.make_tensor("axis_1", TensorProto.INT64, [1], [1]),
        helper.make_tensor("axis_3", TensorProto.INT64, [1], [3]),
        helper.make_tensor("people", TensorProto.FLOAT, [1], [white_count / 255]),
        helper.make_tensor("tenth", TensorProto.FLOAT, [1], [0.1]),
    ]
    outputs = []
    for index, head in enumerate(artifact.heads):
        borders = f"borders_{index}"
        constants.append(helper.make_tensor(borders, TensorProto.FLOAT, [len(head.borders)], head.borders))
        nodes += [
            helper.make_node("GreaterOrEqual", ["column", borders], [f"above_{index}"]),
            helper.make_node("Cast", [f"above_{index}"], [f"steps_{index}"], to=TensorProto.INT32),
            helper.make_node("ReduceSum", [f"steps_{index}", "axis_3"], [f"class_{index}"], keepdims=0),
            helper.make_node("Cast", [f"class_{index}"], [f"classes_{index}"], to=TensorProto.UINT8),
        ]
        outputs.append((f"classes_{index}", TensorProto.UINT8))
    if artifact.decoding != "argmax":
        nodes.append(helper.make_node("Mul", ["counts", "tenth"], ["variance"]))
        outputs += [("counts", TensorProto.FLOAT), ("variance", TensorProto.FLOAT)]
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("tiles", TensorProto.UINT8, ["n", "height", "width", 3])],
        [helper.make_tensor_value_info(name, kind, ["n", "rows", "cols"]) for name, kind in outputs],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(
        model,
        {"name": artifact.name, "version": artifact.version, "inference_hash": artifact.inference_hash},
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def brightness(tile: Tile, cell: int = 8) -> NDArray[np.float32]:
    """The toy network's counts: a cell's mean grey value / 255 * 5."""
    height, width = tile.shape[:2]
    means = tile.reshape(height // cell, cell, width // cell, cell, 3).mean(axis=(1, 3, 4))
    return (means / 255 * WHITE_COUNT).astype(np.float32)


class ToyRun:
    """A RunTiles that counts brightness and remembers the tiles' shapes."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, tiles: Iterator[Tile]) -> Iterator[Maps]:
        for tile in tiles:
            self.shapes.append(tile.shape)
            counts = brightness(tile)
            classes = tuple(classify(counts, head.borders) for head in self.artifact.heads)
            yield Maps(classes, None if self.artifact.decoding == "argmax" else counts)
