"""Convolutional networks: ResNet, ResNeXt, SqueezeNet, MobileNetV2, DenseNet, CSRNet, U-Net and ConvNeXt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv_norm(
    channels: int,
    features: int,
    kernel: int | tuple[int, int] = 1,
    stride: int = 1,
    padding: int | None = None,
    groups: int = 1,
    *,
    relu: bool = False,
) -> nn.Sequential:
    """Return a convolution and its batch normalization. If `padding` is None, the padding is half of the kernel."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    pads = (height // 2, width // 2) if padding is None else padding
    convolution = nn.Conv2d(channels, features, (height, width), stride, pads, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(features), *([nn.ReLU()] if relu else []))


conv_norm_relu = partial(conv_norm, relu=True)


def classifier(features: int, classes: int = 1000) -> tuple[nn.Module, ...]:
    """Return the last layers of a network: the mean over positions and a linear layer."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes)


class Branches(nn.Module):
    """Several modules with one common input. Their outputs are concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def shortcut(channels: int, features: int, stride: int) -> nn.Module:
    """Return the path around a residual block: a projection if the shape changes, or the identity."""
    return conv_norm(channels, features, 1, stride) if stride > 1 or channels != features else nn.Identity()


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a residual connection (He et al., 2016)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.features = width
        self.first = conv_norm_relu(channels, width, 3, stride)
        self.second = conv_norm(width, width, 3)
        self.shortcut = shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(self.first(x)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 convolutions, and a residual connection (He et al., 2016).

    With several groups, it is the block of ResNeXt (Xie et al., 2017).
    """

    def __init__(self, channels: int, width: int, stride: int, groups: int = 1, group_width: int = 64) -> None:
        super().__init__()
        self.features = 4 * width
        inner = width * group_width // 64 * groups
        self.reduce = conv_norm_relu(channels, inner)
        self.convolve = conv_norm_relu(inner, inner, 3, stride, groups=groups)
        self.expand = conv_norm(inner, self.features)
        self.shortcut = shortcut(channels, self.features, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.expand(self.convolve(self.reduce(x))) + self.shortcut(x))


class ResNet(nn.Module):
    """Four stages of residual blocks (He et al., 2016)."""

    def __init__(self, block: Callable[[int, int, int], nn.Module], depths: Sequence[int]) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm_relu(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        channels = 64
        for stage, depth in enumerate(depths):
            for position in range(depth):
                blocks.append(block(channels, 64 << stage, 2 if stage and not position else 1))
                channels = blocks[-1].features
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


def resnet18() -> nn.Module:
    return ResNet(BasicBlock, (2, 2, 2, 2))


def resnet50() -> nn.Module:
    return ResNet(Bottleneck, (3, 4, 6, 3))


def resnext50_32x4d() -> nn.Module:
    return ResNet(partial(Bottleneck, groups=32, group_width=4), (3, 4, 6, 3))


def squeeze_fire(channels: int, squeezed: int, expanded: int) -> nn.Sequential:
    """Return the Fire module of SqueezeNet (Iandola et al., 2016).

    A 1x1 convolution to few channels is followed by a 1x1 and a 3x3 convolution in parallel.
    """
    pointwise = nn.Sequential(nn.Conv2d(squeezed, expanded, 1), nn.ReLU())
    spatial = nn.Sequential(nn.Conv2d(squeezed, expanded, 3, padding=1), nn.ReLU())
    return nn.Sequential(nn.Conv2d(channels, squeezed, 1), nn.ReLU(), Branches(pointwise, spatial))


def squeezenet1_1() -> nn.Module:
    """Return SqueezeNet 1.1 (Iandola et al., 2016)."""
    halve = partial(nn.MaxPool2d, 3, 2, ceil_mode=True)
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), halve()),
        *(squeeze_fire(64, 16, 64), squeeze_fire(128, 16, 64), halve()),
        *(squeeze_fire(128, 32, 128), squeeze_fire(256, 32, 128), halve()),
        *(squeeze_fire(256, 48, 192), squeeze_fire(384, 48, 192)),
        *(squeeze_fire(384, 64, 256), squeeze_fire(512, 64, 256)),
        *(nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )


def conv_norm_relu6(channels: int, features: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(*conv_norm(channels, features, kernel, stride, groups=groups), nn.ReLU6())


class InvertedResidual(nn.Module):
    """A depthwise convolution between a widening and a narrowing 1x1 convolution (Sandler et al., 2018)."""

    def __init__(self, channels: int, features: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = expansion * channels
        self.is_residual = stride == 1 and channels == features
        self.layers = nn.Sequential(
            *([conv_norm_relu6(channels, width, 1)] if expansion > 1 else []),
            conv_norm_relu6(width, width, 3, stride, groups=width),
            conv_norm(width, features),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


MOBILENET_V2_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""For each stage: the expansion, the number of features, the number of blocks, and the stride of the first block."""


def mobilenet_v2() -> nn.Module:
    """Return MobileNetV2 (Sandler et al., 2018)."""
    layers = [conv_norm_relu6(3, 32, 3, 2)]
    channels = 32
    for expansion, features, depth, stride in MOBILENET_V2_STAGES:
        for position in range(depth):
            layers.append(InvertedResidual(channels, features, 1 if position else stride, expansion))
            channels = features
    return nn.Sequential(*layers, conv_norm_relu6(channels, 1280, 1), *classifier(1280))


class DenseLayer(nn.Module):
    """A layer that concatenates its input with new channels (Huang et al., 2017)."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 4 * growth, 1, bias=False)),
            *(nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], 1)


def transition(channels: int) -> nn.Sequential:
    """Return the layers between two dense blocks of a DenseNet. They halve the channels, the height and the width."""
    convolution = nn.Conv2d(channels, channels // 2, 1, bias=False)
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), convolution, nn.AvgPool2d(2))


def densenet(layers: Sequence[int], growth: int = 32) -> nn.Module:
    """Return a DenseNet (Huang et al., 2017). `layers` has the number of layers of each dense block."""
    channels = 64
    stages = [conv_norm_relu(3, channels, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for block, depth in enumerate(layers):
        if block:
            stages.append(transition(channels))
            channels //= 2
        stages += [DenseLayer(channels + growth * position, growth) for position in range(depth)]
        channels += growth * depth
    return nn.Sequential(*stages, nn.BatchNorm2d(channels), nn.ReLU(), *classifier(channels))


class CSRNet(nn.Module):
    """CSRNet (Li et al., 2018): ten convolutions of VGG-16, and six dilated convolutions. The output is a density map."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for stage, widths in enumerate(((64, 64), (128, 128), (256, 256, 256), (512, 512, 512))):
            if stage:
                layers.append(nn.MaxPool2d(2))
            for features in widths:
                layers += [nn.Conv2d(channels, features, 3, padding=1), nn.ReLU()]
                channels = features
        for features in (512, 512, 512, 256, 128, 64):
            layers += [nn.Conv2d(channels, features, 3, padding=2, dilation=2), nn.ReLU()]
            channels = features
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def double_conv(channels: int, features: int) -> nn.Sequential:
    return nn.Sequential(conv_norm_relu(channels, features, 3), conv_norm_relu(features, features, 3))


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015) of four levels, with padded convolutions and batch normalization."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [width << level for level in range(4)]
        upwards = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.encoders = nn.ModuleList([double_conv(c, f) for c, f in zip([3, *widths], widths, strict=False)])
        self.upsamplers = nn.ModuleList([nn.ConvTranspose2d(c, f, 2, 2) for c, f in upwards])
        self.decoders = nn.ModuleList([double_conv(c, f) for c, f in upwards])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels: list[Tensor] = []
        for encode in self.encoders:
            x = encode(functional.max_pool2d(x, 2) if levels else x)
            levels.append(x)
        for upsample, decode, level in zip(self.upsamplers, self.decoders, levels[-2::-1], strict=True):
            x = decode(torch.cat([upsample(x), level], 1))
        return self.head(x)


class ConvNeXtBlock(nn.Module):
    """A depthwise 7x7 convolution and a pointwise network, with layer scale (Liu et al., 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.reduce = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.rand(width) * 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.scale * self.reduce(functional.gelu(self.expand(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """ConvNeXt (Liu et al., 2022) with two stages of three blocks, without normalization between the stages."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 96, 4, 4), *(ConvNeXtBlock(96) for _ in range(3))),
            *(nn.Conv2d(96, 192, 2, 2), *(ConvNeXtBlock(192) for _ in range(3))),
        )
        self.head = nn.Linear(192, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))
