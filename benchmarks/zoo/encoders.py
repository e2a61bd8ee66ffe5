"""Encoders of sequences: with attention, with low-rank adapters, and with MLP mixing instead of attention."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional


def randomize_layer_norms(module: nn.Module) -> None:
    """Give each layer normalization in the module random scales and shifts, as after training, instead of ones and zeros."""
    for norm in module.modules():
        if isinstance(norm, nn.LayerNorm):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0, 0.1)


class LowRankAdapted(nn.Module):
    """A linear layer with a low-rank adapter that is not merged into the layer (LoRA; Hu et al., 2022)."""

    scale = 2.0

    def __init__(self, channels: int, features: int, rank: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, features)
        self.down = nn.Parameter(torch.randn(channels, rank) * 0.05)
        self.up = nn.Parameter(torch.randn(rank, features) * 0.05)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + (x @ self.down) @ self.up * self.scale


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network (Vaswani et al., 2017).

    If `pre_norm` is True, the inputs of both parts are normalized. Otherwise, the residual sums are normalized.
    """

    def __init__(self, width: int, heads: int, hidden: int, *, pre_norm: bool, adapted: bool) -> None:
        super().__init__()
        linear = LowRankAdapted if adapted else nn.Linear
        self.heads = heads
        self.pre_norm = pre_norm
        self.query = linear(width, width)
        self.key = linear(width, width)
        self.value = linear(width, width)
        self.out = linear(width, width)
        self.expand = linear(width, hidden)
        self.reduce = linear(hidden, width)
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward_norm = nn.LayerNorm(width)
        randomize_layer_norms(self)

    def attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        size = width // self.heads

        def by_head(y: Tensor) -> Tensor:
            return y.view(batch, length, self.heads, size).transpose(1, 2)

        query, key, value = by_head(self.query(x)), by_head(self.key(x)), by_head(self.value(x))
        weights = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(size), -1)
        return self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.reduce(functional.gelu(self.expand(x)))

    def forward(self, x: Tensor) -> Tensor:
        if self.pre_norm:
            x = x + self.attention(self.attention_norm(x))
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.attention_norm(x + self.attention(x))
        return self.feed_forward_norm(x + self.feed_forward(x))


def encoder(
    layers: int, width: int = 768, heads: int = 12, hidden: int = 3072, *, pre_norm: bool = False, adapted: bool = False
) -> nn.Module:
    """Return encoder layers without embeddings. The default sizes are those of BERT-base (Devlin et al., 2019)."""
    layer = partial(EncoderLayer, width, heads, hidden, pre_norm=pre_norm, adapted=adapted)
    return nn.Sequential(*(layer() for _ in range(layers)))


class MixerLayer(nn.Module):
    """A layer of MLP-Mixer (Tolstikhin et al., 2021).

    The layer has a network over the positions of each channel, and then a network over the channels of each position.
    """

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.position_norm = nn.LayerNorm(width)
        self.channel_norm = nn.LayerNorm(width)
        self.over_positions = self.network(positions, 2 * positions)
        self.over_channels = self.network(width, 4 * width)

    @staticmethod
    def network(features: int, hidden: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_positions(self.position_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.channel_norm(x))


class MLPMixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al., 2021) with four layers over 14x14 patches, without a classifier."""

    def __init__(self, positions: int = 196, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.layers = nn.Sequential(*(MixerLayer(positions, width) for _ in range(layers)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.patches(x).flatten(2).transpose(1, 2)).mean(1)
