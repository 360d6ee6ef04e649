"""The torch network: an encoder, a decoder to the cell's stride, and one classification head per partition.

Downloads no weights. Input [n, 3, height, width] float, normalised, sides multiples of 32;
output one tensor of logits [n, classes, height/cell, width/cell] per head.
"""

import math
from collections import OrderedDict
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from uepnet.model.artifact import Layout

DEEPEST_STRIDE = 32
LITE = {  # name: factors for width (channels) and depth (repeats)
    "efficientnet-lite0": (1.0, 1.0),
    "efficientnet-lite1": (1.0, 1.1),
    "efficientnet-lite2": (1.1, 1.2),
}


class Vgg16(nn.Module):
    """The 13 convolutions of VGG-16 in five stages, each ending with a 2x2 max-pool. No batch norm."""

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
        """The layers of the first stages, which a run may freeze."""
        return list(self.features[: self._ends[stages - 1] + 1]) if stages else []

    def forward(self, x: Tensor) -> list[Tensor]:
        outputs = []
        for index, layer in enumerate(self.features):
            x = layer(x)
            if index in self._ends[2:]:
                outputs.append(x)
        return outputs


class Normed(nn.Sequential):
    """A convolution without bias, its batch norm, and an optional activation.

    A batch norm with fixed statistics is folded into the convolution's weights: same output and gradients, one pass
    over the activations less. The exporter folds by itself.

    Depthwise convolutions stay in float32 under bfloat16 autocast on a CPU, because their gradients are slower there.
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


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite without its classifier: no squeeze-excite, ReLU6 everywhere.

    `width` and `depth` multiply the channels and repeats of Lite0, except the stem and the number of blocks in the
    first and last stage. Strided convolutions are padded symmetrically; the original pads right and bottom only. The
    features are shifted by half a step, and the graph needs no separate padding nodes.
    """

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
    _outputs = (2, 4, 6)  # stages whose outputs go to the decoder

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        self.stem = _conv_bn(3, 32, 3, stride=2)
        self.stages = nn.ModuleList()
        before, last, made = 32, len(self._stages) - 1, []
        for index, (kernel, stride, expand, base, repeats) in enumerate(self._stages):
            channels = _in_eights(base * width)
            more = repeats if index in (0, last) else math.ceil(repeats * depth)
            blocks = [InvertedResidual(before, channels, kernel, stride, expand)]
            blocks += [InvertedResidual(channels, channels, kernel, 1, expand) for _ in range(more - 1)]
            self.stages.append(nn.Sequential(*blocks))
            made.append(channels)
            before = channels
        self.channels = tuple(made[index] for index in self._outputs)  # at strides 8, 16, 32

    def early(self, stages: int) -> list[nn.Module]:
        """The layers of the first stages (the stem is the first), which a run may freeze."""
        return [self.stem, *self.stages[: stages - 1]] if stages else []

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        outputs = []
        for index, stage in enumerate(self.stages):
            x = stage(x)
            if index in self._outputs:
                outputs.append(x)
        return outputs


def _in_eights(channels: float) -> int:
    """The nearest multiple of 8 that removes at most a tenth, as in the original implementation."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class Up(nn.Module):
    """Doubles the resolution, then joins with the encoder's features of that resolution."""

    def __init__(self, inputs: int, skip: int, outputs: int, norm: bool) -> None:
        super().__init__()
        middle = outputs // 2
        self.reduce = _conv(inputs, middle, norm)
        self.join = nn.Sequential(_conv(skip + middle, outputs, norm), _conv(outputs, outputs, norm))

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        joined: Tensor = self.join(torch.cat([skip, self.reduce(x)], 1))
        return joined


class LeanUp(nn.Module):
    """Like `Up` at a quarter of the cost: 1x1 convolutions before upsampling, a sum, depthwise 5x5 convolutions."""

    def __init__(self, inputs: int, skip: int, outputs: int) -> None:
        super().__init__()
        self.reduce = _conv_bn(inputs, outputs, 1, act=False)
        self.lateral = _conv_bn(skip, outputs, 1, act=False)
        self.join = nn.Sequential(*(InvertedResidual(outputs, outputs, 5, 1, expand=1) for _ in range(2)))

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = functional.interpolate(self.reduce(x), scale_factor=2.0, mode="bilinear", align_corners=False)
        joined: Tensor = self.join(x + self.lateral(skip))
        return joined


def _conv(inputs: int, outputs: int, norm: bool) -> nn.Module:
    """A 3x3 convolution; with batch norm where the encoder has it (the paper's VGG-16 has none)."""
    if norm:
        return Normed(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True))


class FamiliarityHead(nn.Module):
    """How much each cell looks like the training images: 0 (strange) to 1 (familiar), from the deepest features."""

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int, hidden: int, cell: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))
        self.inner = nn.Conv2d(channels, hidden, 1)
        self.outer = nn.Conv2d(hidden, 1, 1)
        self.enlarge = DEEPEST_STRIDE // cell

    def logits(self, features: Tensor) -> Tensor:
        """[n, channels, rows, columns] at stride 32 -> [n, rows, columns]."""
        x: Tensor = self.outer(functional.relu(self.inner((features - self.mean) / self.std)))
        return x[:, 0]

    def forward(self, features: Tensor) -> Tensor:
        """[n, channels, rows, columns] at stride 32 -> [n, rows, columns] of cells."""
        chance = self.logits(features).sigmoid()[:, None]
        return functional.interpolate(chance, scale_factor=float(self.enlarge), mode="nearest")[:, 0]


class UEPNet(nn.Module):
    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        light = layout.encoder in LITE
        self.encoder = EfficientNetLite(*LITE[layout.encoder]) if light else Vgg16()
        width = layout.width
        skips = list(self.encoder.channels)  # strides 8, 16, 32
        deepest = skips.pop()
        inputs = [deepest, width]
        # The decoder upsamples from stride 32 to the cell size: two steps for cells of 8, one for 16, none for 32.
        steps = {8: 2, 16: 1, 32: 0}[layout.cell]
        self.ups = nn.ModuleList(
            LeanUp(inputs[step], skips[-1 - step], width)
            if layout.decoder == "lean"
            else Up(inputs[step], skips[-1 - step], width, norm=light)
            for step in range(steps)
        )
        last = width if steps else deepest
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(last, width, 1), nn.ReLU(inplace=True), nn.Conv2d(width, classes, 1))
            for classes in layout.classes
        )
        self.familiarity: FamiliarityHead | None = None  # fitted after training (training/familiarity.py)
        self._initialise(light)

    def _initialise(self, light: bool) -> None:
        """N(0, 0.01) and zero biases, as in the paper; Kaiming initialisation for inner layers of the light network."""
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
        return self._logits(self.encoder(x))

    def with_familiarity(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """The logits, and the familiarity of each cell [n, rows, columns]."""
        if self.familiarity is None:
            raise ValueError("the network has no familiarity head")
        features = self.encoder(x)
        return self._logits(features), self.familiarity(features[-1])

    def _logits(self, features: list[Tensor]) -> list[Tensor]:
        """`features`: the encoder's outputs at strides 8, 16 and 32."""
        *skips, x = features
        for up, skip in zip(self.ups, reversed(skips), strict=False):
            x = up(x, skip)
        return [head(x) for head in self.heads]


def build(layout: Layout) -> UEPNet:
    return UEPNet(layout)
