"""Recurrent networks, unrolled over their time steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class UnrolledLSTM(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber, 1997), unrolled over the steps of its input.

    One matrix product with the input and one matrix product with the state compute all four gates.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.of_input = nn.Linear(hidden, 4 * hidden)
        self.of_state = nn.Linear(hidden, 4 * hidden)

    def gates(self, x: Tensor, state: Tensor) -> Sequence[Tensor]:
        """Return the values of the input gate, the forget gate, the candidate and the output gate before activation."""
        gates: Sequence[Tensor] = (self.of_input(x) + self.of_state(state)).chunk(4, 1)
        return gates

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(1, self.hidden)
        cell = torch.zeros(1, self.hidden)
        for step in range(x.shape[1]):
            admitted, kept, candidate, shown = self.gates(x[:, step], state)
            cell = torch.sigmoid(kept) * cell + torch.sigmoid(admitted) * torch.tanh(candidate)
            state = torch.sigmoid(shown) * torch.tanh(cell)
        return state


class SplitGateLSTM(UnrolledLSTM):
    """An unrolled LSTM with separate matrix products for each gate."""

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.of_input = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(4)])
        self.of_state = nn.ModuleList([nn.Linear(hidden, hidden, bias=False) for _ in range(4)])

    def gates(self, x: Tensor, state: Tensor) -> Sequence[Tensor]:
        return [first(x) + second(state) for first, second in zip(self.of_input, self.of_state, strict=True)]


class NASRNN(nn.Module):
    """The recurrent cell that architecture search found (Zoph and Le, 2017), applied once for each input.

    `weights` is the number of sets of weights. If it is 1, all steps share one set.
    """

    def __init__(self, hidden: int, weights: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.weights = weights
        self.of_input = nn.ParameterList([torch.randn(hidden, hidden) * hidden**-0.5 for _ in range(8 * weights)])
        self.of_state = nn.ParameterList([torch.randn(hidden, hidden) * hidden**-0.5 for _ in range(8 * weights)])

    def forward(self, *xs: Tensor) -> Tensor:
        state = torch.zeros(1, self.hidden) + 0.1 * xs[0]
        for step, x in enumerate(xs):
            first = 8 * (step % self.weights)
            state = self.cell([x @ self.of_input[first + n] + state @ self.of_state[first + n] for n in range(8)])
        return state

    @staticmethod
    def cell(sums: list[Tensor]) -> Tensor:
        relu, sigmoid, tanh = torch.relu, torch.sigmoid, torch.tanh
        first = relu(sums[0]) + sigmoid(sums[3])
        second = sigmoid(sums[1]) + tanh(sums[2])
        third = sigmoid(sums[4]) * tanh(sums[5])
        fourth = sigmoid(sums[6]) * relu(sums[7])
        return tanh(tanh(sigmoid(second) + tanh(third)) * tanh(tanh(first) * tanh(fourth)))
