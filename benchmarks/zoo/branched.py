"""Convolutional networks with parallel branches: Inception, RepVGG and MobileOne in training form, and NASNet."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.convolutional import Branches, classifier, conv_norm, conv_norm_relu


def pooled(channels: int, features: int) -> nn.Sequential:
    """Return the pooling branch of an Inception block."""
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv_norm_relu(channels, features))


def inception_a(channels: int, pooled_features: int) -> nn.Module:
    """Return the block of figure 5 of Szegedy et al. (2016), with a 5x5 convolution."""
    c = conv_norm_relu
    return Branches(
        c(channels, 64),
        nn.Sequential(c(channels, 48), c(48, 64, 5)),
        nn.Sequential(c(channels, 64), c(64, 96, 3), c(96, 96, 3)),
        pooled(channels, pooled_features),
    )


def reduction_a(channels: int) -> nn.Module:
    """Return the reduction of figure 10 of Szegedy et al. (2016), from 35x35 to 17x17."""
    c = conv_norm_relu
    return Branches(
        c(channels, 384, 3, 2, 0),
        nn.Sequential(c(channels, 64), c(64, 96, 3), c(96, 96, 3, 2, 0)),
        nn.MaxPool2d(3, 2),
    )


def inception_b(channels: int, width: int) -> nn.Module:
    """Return the block of figure 6 of Szegedy et al. (2016), with 7x7 convolutions factorized into 1x7 and 7x1."""
    c, row, column = conv_norm_relu, (1, 7), (7, 1)
    return Branches(
        c(channels, 192),
        nn.Sequential(c(channels, width), c(width, width, row), c(width, 192, column)),
        nn.Sequential(
            c(channels, width), c(width, width, column), c(width, width, row), c(width, width, column), c(width, 192, row)
        ),
        pooled(channels, 192),
    )


def reduction_b(channels: int) -> nn.Module:
    """Return the reduction of Inception v3 from 17x17 to 8x8."""
    c = conv_norm_relu
    return Branches(
        nn.Sequential(c(channels, 192), c(192, 320, 3, 2, 0)),
        nn.Sequential(c(channels, 192), c(192, 192, (1, 7)), c(192, 192, (7, 1)), c(192, 192, 3, 2, 0)),
        nn.MaxPool2d(3, 2),
    )


class InceptionC(nn.Module):
    """The block of figure 7 of Szegedy et al. (2016). Two branches fork into a 1x3 and a 3x1 convolution each."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        c, row, column = conv_norm_relu, (1, 3), (3, 1)
        self.pointwise = c(channels, 320)
        self.short = c(channels, 384)
        self.short_forks = nn.ModuleList([c(384, 384, row), c(384, 384, column)])
        self.long = nn.Sequential(c(channels, 448), c(448, 384, 3))
        self.long_forks = nn.ModuleList([c(384, 384, row), c(384, 384, column)])
        self.pooled = pooled(channels, 192)

    def forward(self, x: Tensor) -> Tensor:
        short, long = self.short(x), self.long(x)
        forks = [*(fork(short) for fork in self.short_forks), *(fork(long) for fork in self.long_forks)]
        return torch.cat([self.pointwise(x), *forks, self.pooled(x)], 1)


def inception_v3() -> nn.Module:
    """Return Inception v3 (Szegedy et al., 2016) without its auxiliary classifier."""
    c = conv_norm_relu
    return nn.Sequential(
        *(c(3, 32, 3, 2, 0), c(32, 32, 3, 1, 0), c(32, 64, 3), nn.MaxPool2d(3, 2)),
        *(c(64, 80), c(80, 192, 3, 1, 0), nn.MaxPool2d(3, 2)),
        *(inception_a(192, 32), inception_a(256, 64), inception_a(288, 64), reduction_a(288)),
        *(inception_b(768, 128), inception_b(768, 160), inception_b(768, 160), inception_b(768, 192), reduction_b(768)),
        *(InceptionC(1280), InceptionC(2048)),
        *classifier(2048),
    )


class RepVGGBlock(nn.Module):
    """A RepVGG block in training form (Ding et al., 2021): 3x3, 1x1 and identity branches, each with batch normalization."""

    def __init__(self, channels: int, features: int, stride: int) -> None:
        super().__init__()
        self.spatial = conv_norm(channels, features, 3, stride)
        self.pointwise = conv_norm(channels, features, 1, stride)
        self.identity = nn.BatchNorm2d(channels) if stride == 1 and channels == features else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.spatial(x) + self.pointwise(x)
        return functional.relu(y if self.identity is None else y + self.identity(x))


def repvgg_a0() -> nn.Module:
    """Return RepVGG-A0 (Ding et al., 2021) in training form."""
    blocks = [RepVGGBlock(3, 48, 2)]
    channels = 48
    for features, depth in ((48, 2), (96, 4), (192, 14), (1280, 1)):
        for position in range(depth):
            blocks.append(RepVGGBlock(channels, features, 1 if position else 2))
            channels = features
    return nn.Sequential(*blocks, *classifier(channels))


class MobileOneBlock(nn.Module):
    """A MobileOne block in training form (Vasu et al., 2022).

    The block has `branches` convolutions of the same kernel size, a 1x1 scale branch, and an identity branch.
    """

    def __init__(self, channels: int, features: int, kernel: int, stride: int = 1, groups: int = 1, branches: int = 1) -> None:
        super().__init__()
        self.identity = nn.BatchNorm2d(channels) if channels == features and stride == 1 else None
        self.scale = conv_norm(channels, features, 1, stride, groups=groups) if kernel > 1 else None
        self.branches = nn.ModuleList([conv_norm(channels, features, kernel, stride, groups=groups) for _ in range(branches)])

    def forward(self, x: Tensor) -> Tensor:
        present = [branch for branch in (self.identity, self.scale, *self.branches) if branch is not None]
        return functional.relu(sum(branch(x) for branch in present))


def mobileone_s0() -> nn.Module:
    """Return MobileOne-S0 (Vasu et al., 2022) in training form, with four branches."""
    blocks = [MobileOneBlock(3, 48, 3, 2)]
    channels = 48
    for features, depth in ((48, 2), (128, 8), (256, 10), (1024, 1)):
        for position in range(depth):
            stride = 1 if position else 2
            blocks.append(MobileOneBlock(channels, channels, 3, stride, groups=channels, branches=4))
            blocks.append(MobileOneBlock(channels, features, 1, branches=4))
            channels = features
    return nn.Sequential(*blocks, *classifier(channels))


def separable(width: int, kernel: int) -> nn.Sequential:
    """Return a depthwise and a pointwise convolution, twice in succession, as in NASNet."""

    def once() -> tuple[nn.Module, ...]:
        depthwise = nn.Conv2d(width, width, kernel, 1, kernel // 2, groups=width, bias=False)
        return nn.ReLU(), depthwise, nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width)

    return nn.Sequential(*once(), *once())


class NASNetCell(nn.Module):
    """The normal cell of NASNet-A (Zoph et al., 2018): five sums of two operations on the outputs of the two previous cells."""

    def __init__(self, before: int, channels: int, width: int) -> None:
        super().__init__()
        self.fit_previous = nn.Sequential(nn.ReLU(), *conv_norm(before, width))
        self.fit_current = nn.Sequential(nn.ReLU(), *conv_norm(channels, width))
        self.separable_0 = separable(width, 5)
        self.separable_1 = separable(width, 3)
        self.separable_2 = separable(width, 5)
        self.separable_3 = separable(width, 3)
        self.separable_4 = separable(width, 3)

    def forward(self, before: Tensor, x: Tensor) -> Tensor:
        previous, current = self.fit_previous(before), self.fit_current(x)
        pool = partial(functional.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False)
        sums = [
            self.separable_0(current) + self.separable_1(previous),
            self.separable_2(previous) + self.separable_3(previous),
            pool(current) + previous,
            pool(previous) + pool(previous),
            self.separable_4(current) + current,
        ]
        return torch.cat([previous, *sums], 1)


class NASNetStack(nn.Module):
    """Four normal cells of NASNet-A (Zoph et al., 2018), one after the other."""

    def __init__(self, width: int = 44, cells: int = 4) -> None:
        super().__init__()
        self.stem = conv_norm(3, width, 3, 2)
        channels = [width, width, *(6 * width for _ in range(cells))]
        self.cells = nn.ModuleList([NASNetCell(channels[n], channels[n + 1], width) for n in range(cells)])
        self.head = nn.Linear(channels[-1], 1000)

    def forward(self, x: Tensor) -> Tensor:
        before = x = self.stem(x)
        for cell in self.cells:
            before, x = x, cell(before, x)
        return self.head(functional.relu(x).mean((2, 3)))
