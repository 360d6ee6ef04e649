"""The torch network: an encoder, a decoder to the cell's stride, and one classification head per partition.

Takes plain numbers and downloads nothing. Input [n, 3, height, width] float, normalised, sides multiples of 32;
output one [n, classes, height/cell, width/cell] tensor of logits a head.
"""

from collections import OrderedDict
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from uepnet.model.artifact import Layout


class Vgg16(nn.Module):
    """VGG-16's 13 convolutions in five stages, each of which ends in its 2x2 max-pool. No batch norm."""

    channels = (256, 512, 512)  # at strides 8, 16, 32
    _stages = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self._ends: list[int] = []
        before = 3
        for stage in self._stages:
            for channels in stage:
                layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(inplace=True)]
                before = channels
            layers.append(nn.MaxPool2d(2))
            self._ends.append(len(layers) - 1)
        self.features = nn.Sequential(*layers)  # the key names of torchvision's VGG

    def early(self, stages: int) -> list[nn.Module]:
        """The layers of the first stages: what a run may keep as it is."""
        return list(self.features[: self._ends[stages - 1] + 1]) if stages else []

    def forward(self, x: Tensor) -> list[Tensor]:
        outputs = []
        for index, layer in enumerate(self.features):
            x = layer(x)
            if index in self._ends[2:]:
                outputs.append(x)
        return outputs


class Normed(nn.Sequential):
    """A convolution without bias, its batch norm, and what follows them.

    A norm that keeps its statistics is folded into the convolution's weights: the same numbers and gradients without
    another pass over the activations. An exporter folds by itself.

    One filter a channel stays in float32 where a CPU calculates in bfloat16: its gradients are slower to come by there.
    """

    def forward(self, x: Tensor) -> Tensor:
        if cast(nn.Conv2d, self[0]).groups > 1 and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return self._normed(x.float())
        return self._normed(x)

    def _normed(self, x: Tensor) -> Tensor:
        conv, norm = cast(nn.Conv2d, self[0]), cast(nn.BatchNorm2d, self[1])
        if norm.training or torch.compiler.is_exporting():
            whole: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return whole
        scale = norm.weight * torch.rsqrt(cast(Tensor, norm.running_var) + norm.eps)
        bias = norm.bias - cast(Tensor, norm.running_mean) * scale
        weight = conv.weight * scale[:, None, None, None]
        x = functional.conv2d(x, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups)
        for layer in list(self)[2:]:
            x = layer(x)
        return x


def _conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True) -> nn.Module:
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        bn=nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01),
    )
    if act:
        layers["act"] = nn.ReLU6(inplace=True)
    return Normed(layers)


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = inputs * expand
        self.expand = _conv_bn(inputs, inner, 1) if expand > 1 else nn.Identity()
        self.depthwise = _conv_bn(inner, inner, kernel, stride, groups=inner)
        self.project = _conv_bn(inner, outputs, 1, act=False)
        self.skip = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.skip else y


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 without its classifier: no squeeze-excite, ReLU6 everywhere.

    Strided convolutions are padded symmetrically, where the original pads the far side only: the features are
    those of the picture moved by half a step, and no padding nodes stand between the convolutions.
    """

    channels = (40, 112, 320)  # at strides 8, 16, 32
    # kernel, stride, expansion, channels, repeats
    _stages = (
        (3, 1, 1, 16, 1),
        (3, 2, 6, 24, 2),
        (5, 2, 6, 40, 2),
        (3, 2, 6, 80, 3),
        (5, 1, 6, 112, 3),
        (5, 2, 6, 192, 4),
        (3, 1, 6, 320, 1),
    )
    _outputs = (2, 4, 6)  # the stages whose outputs the decoder sees

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv_bn(3, 32, 3, stride=2)
        self.stages = nn.ModuleList()
        before = 32
        for kernel, stride, expand, channels, repeats in self._stages:
            blocks = [InvertedResidual(before, channels, kernel, stride, expand)]
            blocks += [InvertedResidual(channels, channels, kernel, 1, expand) for _ in range(repeats - 1)]
            self.stages.append(nn.Sequential(*blocks))
            before = channels

    def early(self, stages: int) -> list[nn.Module]:
        """The stem, which is the first stage, and those after it: what a run may keep as it is."""
        return [self.stem, *self.stages[: stages - 1]] if stages else []

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        outputs = []
        for index, stage in enumerate(self.stages):
            x = stage(x)
            if index in self._outputs:
                outputs.append(x)
        return outputs


class Up(nn.Module):
    """Twice the size, then joined with the encoder's features of that size."""

    def __init__(self, inputs: int, skip: int, middle: int, outputs: int, norm: bool) -> None:
        super().__init__()
        self.reduce = _conv(inputs, middle, norm)
        self.join = nn.Sequential(_conv(skip + middle, outputs, norm), _conv(outputs, outputs, norm))

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        joined: Tensor = self.join(torch.cat([skip, self.reduce(x)], 1))
        return joined


def _conv(inputs: int, outputs: int, norm: bool) -> nn.Module:
    """A 3x3 convolution; batch norm only beside an encoder that has it (the paper's has none)."""
    if norm:
        return Normed(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True))


class UEPNet(nn.Module):
    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        light = layout.encoder == "efficientnet-lite0"
        self.encoder = EfficientNetLite0() if light else Vgg16()
        width = layout.width
        skips = list(self.encoder.channels)  # strides 8, 16, 32
        deepest = skips.pop()
        inputs = [deepest, width]
        # The decoder climbs from stride 32 to the cell's: two steps for cells of 8, one for 16, none for 32.
        steps = {8: 2, 16: 1, 32: 0}[layout.cell]
        self.ups = nn.ModuleList(
            Up(inputs[step], skips[-1 - step], width // 2, width, norm=light) for step in range(steps)
        )
        last = width if steps else deepest
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(last, width, 1), nn.ReLU(inplace=True), nn.Conv2d(width, classes, 1))
            for classes in layout.classes
        )
        self._initialise(light)

    def _initialise(self, light: bool) -> None:
        """The paper's N(0, 0.01) and zero biases; the light network's inner layers start by Kaiming's rule."""
        for part in (self.ups, self.heads):
            for layer in part.modules():
                if isinstance(layer, nn.Conv2d):
                    if light and layer.out_channels not in self.layout.classes:
                        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                    else:
                        nn.init.normal_(layer.weight, 0.0, 0.01)
                    if layer.bias is not None:
                        nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> list[Tensor]:
        *skips, x = self.encoder(x)
        for up, skip in zip(self.ups, reversed(skips), strict=False):
            x = up(x, skip)
        return [head(x) for head in self.heads]


def build(layout: Layout) -> UEPNet:
    return UEPNet(layout)


def encoder_weights(encoder: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """ImageNet weights under the key names of their origin -> our encoder's key names."""
    if encoder == "vgg16":
        return {key: value for key, value in state.items() if key.startswith("features.")}
    if "_conv_stem.weight" not in state:  # already ours
        return state
    ours = _bn_and_conv(state, "_conv_stem", "_bn0", "stem")
    repeats = [stage[-1] for stage in EfficientNetLite0._stages]
    starts = [sum(repeats[:stage]) for stage in range(len(repeats) + 1)]
    for stage, (start, end) in enumerate(pairwise(starts)):
        for number in range(start, end):
            old, new = f"_blocks.{number}.", f"stages.{stage}.{number - start}."
            if f"{old}_expand_conv.weight" in state:
                ours |= _bn_and_conv(state, f"{old}_expand_conv", f"{old}_bn0", f"{new}expand")
            ours |= _bn_and_conv(state, f"{old}_depthwise_conv", f"{old}_bn1", f"{new}depthwise")
            ours |= _bn_and_conv(state, f"{old}_project_conv", f"{old}_bn2", f"{new}project")
    return ours


def _bn_and_conv(state: dict[str, Tensor], conv: str, norm: str, ours: str) -> dict[str, Tensor]:
    renamed = {f"{ours}.conv.weight": state[f"{conv}.weight"]}
    for part in ("weight", "bias", "running_mean", "running_var"):
        renamed[f"{ours}.bn.{part}"] = state[f"{norm}.{part}"]
    return renamed
