"""Recommendation models, and mixtures of experts in which every expert is evaluated."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DLRM(nn.Module):
    """DLRM (Naumov et al., 2019) with a linear layer after each embedding, and with the products of all pairs of features."""

    def __init__(self, categories: int = 26, width: int = 16) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(1000, width) for _ in range(categories)])
        self.projections = nn.ModuleList([nn.Linear(width, width) for _ in range(categories)])
        self.bottom = nn.Sequential(
            *(nn.Linear(13, 512), nn.ReLU()),
            *(nn.Linear(512, 256), nn.ReLU()),
            *(nn.Linear(256, width), nn.ReLU()),
        )
        self.top = nn.Sequential(
            *(nn.Linear(width + (categories + 1) ** 2, 512), nn.ReLU()),
            *(nn.Linear(512, 256), nn.ReLU()),
            nn.Linear(256, 1),
        )

    def forward(self, x: Tensor, idx: Tensor) -> Tensor:
        dense = self.bottom(x)
        pairs = enumerate(zip(self.embeddings, self.projections, strict=True))
        sparse = [torch.relu(project(embed(idx[:, column]))) for column, (embed, project) in pairs]
        features = torch.stack([dense, *sparse], 1)
        interactions = (features @ features.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([dense, interactions], 1)))


class MultiGateMixture(nn.Module):
    """A multi-gate mixture of experts (MMoE; Ma et al., 2018): each task weights the experts with a separate gate."""

    def __init__(self, features: int = 128, hidden: int = 128, experts: int = 8, tasks: int = 4) -> None:
        super().__init__()
        self.experts = nn.ModuleList([self.expert(features, hidden) for _ in range(experts)])
        self.gates = nn.ModuleList([nn.Linear(features, experts) for _ in range(tasks)])
        self.towers = nn.ModuleList([self.tower() for _ in range(tasks)])

    @staticmethod
    def expert(features: int, hidden: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 64), nn.ReLU())

    @staticmethod
    def tower() -> nn.Sequential:
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        opinions = torch.stack([expert(x) for expert in self.experts], 1)
        weights = [torch.softmax(gate(x), -1).unsqueeze(-1) for gate in self.gates]
        tasks = [tower((weight * opinions).sum(1)) for weight, tower in zip(weights, self.towers, strict=True)]
        return torch.cat(tasks, 1)


class SoftMixture(nn.Module):
    """A mixture of experts (Jacobs et al., 1991): the sum of the outputs of all experts, each multiplied by its gate."""

    def __init__(self, features: int = 512, hidden: int = 1024, experts: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(features, experts)
        self.experts = nn.ModuleList([self.expert(features, hidden) for _ in range(experts)])

    @staticmethod
    def expert(features: int, hidden: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features))

    def forward(self, x: Tensor) -> Tensor:
        gates = torch.softmax(self.gate(x), -1)
        return sum(gates[..., n : n + 1] * expert(x) for n, expert in enumerate(self.experts))
