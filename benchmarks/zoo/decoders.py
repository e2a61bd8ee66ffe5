"""Decoders: Llama blocks over a whole sequence, and single decoding steps of Llama and GPT-2 with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo.encoders import randomize_layer_norms

Cache: TypeAlias = tuple[Tensor, Tensor]
"""The keys and the values of a layer. Both have the shape [batch, heads, positions, size of a head]."""


class RMSNorm(nn.Module):
    """Root mean square normalization (Zhang and Sennrich, 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Rotary(nn.Module):
    """Rotary embedding (Su et al., 2021) of the positions from `first` to `end - 1`."""

    def __init__(self, size: int, first: int, end: int) -> None:
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, size, 2).float() / size)
        angles = torch.arange(first, end).float()[:, None] * frequencies[None]
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-second, first], -1) * self.sine


class GroupedQueryAttention(nn.Module):
    """Attention in which groups of query heads share a key head and a value head (Ainslie et al., 2023).

    Attention over a whole sequence is causal. A single position after a cache attends to the cache and to itself.
    """

    def __init__(self, width: int, heads: int, groups: int, length: int, past: int = 0) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.rotary = Rotary(self.size, past, past + length)
        self.register_buffer("mask", torch.triu(torch.full((length, length), -1e9), 1))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the query, the key and the value of each position. Query and key are rotated."""
        batch, length, _ = x.shape

        def by_head(y: Tensor, heads: int) -> Tensor:
            return y.view(batch, length, heads, self.size).transpose(1, 2)

        query = self.rotary(by_head(self.query(x), self.heads))
        key = self.rotary(by_head(self.key(x), self.groups))
        return query, key, by_head(self.value(x), self.groups)

    def repeated(self, x: Tensor) -> Tensor:
        """Return the key or value heads, each repeated for every query head of its group."""
        batch, _, length, _ = x.shape
        shape = (batch, self.groups, self.heads // self.groups, length, self.size)
        return x[:, :, None].expand(shape).reshape(batch, self.heads, length, self.size)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ self.repeated(key).transpose(-1, -2) * self.size**-0.5

    def attended(self, weights: Tensor, value: Tensor) -> Tensor:
        joined = (weights @ self.repeated(value)).transpose(1, 2)
        return self.out(joined.reshape(joined.shape[0], joined.shape[1], self.heads * self.size))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.projected(x)
        return self.attended(torch.softmax(self.scores(query, key) + self.mask, -1), value)

    def step(self, x: Tensor, past: Cache) -> tuple[Tensor, Cache]:
        query, key, value = self.projected(x)
        key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        return self.attended(torch.softmax(self.scores(query, key), -1), value), (key, value)


class LlamaBlock(nn.Module):
    """A Llama block (Touvron et al., 2023): grouped-query attention and a gated feed-forward network, on normalized inputs."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int, length: int, past: int = 0) -> None:
        super().__init__()
        self.attention = GroupedQueryAttention(width, heads, groups, length, past)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.attention_norm = RMSNorm(width)
        self.feed_forward_norm = RMSNorm(width)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))

    def step(self, x: Tensor, past: Cache) -> tuple[Tensor, Cache]:
        attended, present = self.attention.step(self.attention_norm(x), past)
        x = x + attended
        return x + self.feed_forward(self.feed_forward_norm(x)), present


def llama(layers: int, length: int, width: int = 1024, heads: int = 16, groups: int = 4, hidden: int = 2816) -> nn.Module:
    """Return Llama blocks over `length` positions, without embeddings."""
    return nn.Sequential(*(LlamaBlock(width, heads, groups, hidden, length) for _ in range(layers)))


class GPT2Block(nn.Module):
    """A GPT-2 block (Radford et al., 2019) that processes one position after a cache."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.expand = nn.Linear(width, 4 * width)
        self.reduce = nn.Linear(4 * width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward_norm = nn.LayerNorm(width)

    def attention(self, x: Tensor, past: Cache) -> tuple[Tensor, Cache]:
        batch, length, width = x.shape
        parts = self.query_key_value(x).split(width, -1)
        query, key, value = (part.view(batch, length, self.heads, self.size).transpose(1, 2) for part in parts)
        key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        weights = torch.softmax(query @ key.transpose(-1, -2) * self.size**-0.5, -1)
        return self.out((weights @ value).transpose(1, 2).reshape(batch, length, width)), (key, value)

    def step(self, x: Tensor, past: Cache) -> tuple[Tensor, Cache]:
        attended, present = self.attention(self.attention_norm(x), past)
        x = x + attended
        return x + self.reduce(functional.gelu(self.expand(self.feed_forward_norm(x)), approximate="tanh")), present


def stepped(blocks: Sequence[nn.Module], x: Tensor, past: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Apply the blocks to one position, and return the output and the caches, which then include this position.

    The caches are a list: the keys and the values of the first block, those of the second block, and so on.
    """
    present: list[Tensor] = []
    for block, key, value in zip(blocks, past[::2], past[1::2], strict=True):
        x, cache = block.step(x, (key, value))
        present += cache
    return x, present


class LlamaDecodeStep(nn.Module):
    """A decoding step of Llama (Touvron et al., 2023): the logits after a token, from the keys and values of earlier tokens."""

    def __init__(self, past: int = 127, layers: int = 2, vocabulary: int = 3000, width: int = 1024) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            [LlamaBlock(width, heads=16, groups=4, hidden=2816, length=1, past=past) for _ in range(layers)]
        )
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, token: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        x, present = stepped(self.blocks, self.embedding(token), past)
        return self.head(self.norm(x)), *present


class GPT2DecodeStep(nn.Module):
    """A decoding step of GPT-2 (Radford et al., 2019): the logits after a token, from the keys and values of earlier tokens."""

    def __init__(self, past: int = 127, layers: int = 2, vocabulary: int = 3000, width: int = 768) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(1024, width) * 0.02)
        self.past = past
        self.blocks = nn.ModuleList([GPT2Block(width, heads=12) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.embedding.weight, 0, 0.02)
        randomize_layer_norms(self)

    def forward(self, token: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        x = self.embedding(token) + self.position[self.past]
        x, present = stepped(self.blocks, x, past)
        return functional.linear(self.norm(x), self.embedding.weight), *present
