"""The torch network -> an ONNX graph. The graph is `inference_graph.Graph`, the one that torch evaluation runs."""

import copy
from collections import OrderedDict
from collections.abc import Iterable
from itertools import pairwise

import onnx
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from uepnet.model.artifact import Artifact
from uepnet.model.network import UEPNet
from uepnet.training.inference_graph import Graph

OPSET = 20  # ONNX Runtime reads it since 1.18, on CPU and CUDA


class Half(nn.Module):
    """The network in fp16 between fp32 tiles and fp32 logits: softmax and sums need the range."""

    def __init__(self, network: UEPNet) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).half()

    def forward(self, x: Tensor) -> list[Tensor]:
        return [scores.float() for scores in self.network(x.half())]

    def with_familiarity(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        logits, familiarity = self.network.with_familiarity(x.half())
        return [scores.float() for scores in logits], familiarity.float()


def folded(network: UEPNet) -> UEPNet:
    """A copy in which batch norms are merged into the convolutions before them: half the nodes, the same function.

    It runs in torch, too: `Normed`, which looks for its batch norm, becomes a plain sequence.
    """
    network = copy.deepcopy(network).eval()
    _fold_within(network)
    return network


def _fold_within(parent: nn.Module) -> None:
    for name, child in list(parent.named_children()):
        _fold_within(child)
        if isinstance(child, nn.Sequential):
            setattr(parent, name, _folded(child))


def _folded(block: nn.Sequential) -> nn.Sequential:
    layers = OrderedDict(block.named_children())
    for (name, layer), (after, norm) in pairwise(list(layers.items())):
        if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            layers[name] = fuse_conv_bn_eval(layer, norm)
            layers[after] = nn.Identity()
    return nn.Sequential(layers)


def to_onnx(network: nn.Module, artifact: Artifact) -> onnx.ModelProto:
    """uint8 tiles in, class maps (and counts) out, for any batch size, height and width."""
    outputs = [f"classes_{head}" for head in range(len(artifact.heads))]
    outputs += [] if artifact.decoding == "argmax" else ["counts", "variance"]
    outputs += [] if artifact.familiarity is None else ["familiarity"]
    side = artifact.multiple
    # Traced at one shape: with symbolic shapes the exporter takes four times as long. No layer depends on the shape;
    # the comparison with torch runs on several shapes and would show one that does.
    program = torch.onnx.export(
        Graph(network, artifact).eval(),
        (torch.zeros(2, 2 * side, 3 * side, 3, dtype=torch.uint8),),
        dynamo=True,
        input_names=["tiles"],
        output_names=outputs,
        external_data=False,
        opset_version=OPSET,
        verbose=False,
    )
    assert program is not None  # with dynamo=True it never is
    model: onnx.ModelProto = program.model_proto
    _tidy(model)
    _free_shape(model.graph.input, ("n", "height", "width"))
    _free_shape(model.graph.output, ("n", "rows", "columns"))
    properties = {"name": artifact.name, "version": artifact.version, "inference_hash": artifact.inference_hash}
    onnx.helper.set_model_props(model, properties)
    onnx.checker.check_model(model, full_check=True)
    return model


def _free_shape(values: Iterable[onnx.ValueInfoProto], names: tuple[str, ...]) -> None:
    for value in values:
        for dimension, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
            dimension.dim_param = name


def _tidy(model: onnx.ModelProto) -> None:
    """Name convolutions after their layers; remove the traced shapes, and the exporter's notes, which contain paths."""
    for node in model.graph.node:
        if node.op_type == "Conv":
            layer = node.input[1].removesuffix(".weight")
            node.name = layer.replace("network.", "")
    model.graph.ClearField("value_info")
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
