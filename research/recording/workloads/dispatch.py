"""Tokens to the ranks of their experts and back.

padded   places [E, C, W] filled in order of token | all-to-all of equal parts | batched products over E / ranks experts
uneven   tokens sorted by expert, counts exchanged | all-to-all of those parts | one product per expert
"""

from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.exchange import Blocking, exchange, start_all_to_all, start_uneven_all_to_all
from research.recording.workloads.workload import repeated


class Experts(nn.Module):
    """The experts of one layer that this rank holds: perceptrons with one hidden layer of `hidden` columns.

    The first product runs `times` times; `width` is the columns of a token.
    """

    def __init__(self, experts: int, width: int, hidden: int, times: int = 1) -> None:
        super().__init__()
        self.times = times
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def together(self, tokens: torch.Tensor) -> torch.Tensor:
        """As many tokens for every expert: [experts, n, W] -> [experts, n, W]."""
        return torch.bmm(F.gelu(repeated(torch.bmm, self.times, tokens, self.up)), self.down)

    def each(self, tokens: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Tokens in order of expert, counts[i] of them for expert i: [n, W] -> [n, W]."""
        parts = zip(tokens.split(counts), self.up.unbind(), self.down.unbind(), strict=True)
        return torch.cat([F.gelu(repeated(torch.mm, self.times, part, up)) @ down for part, up, down in parts])


class Dispatch(Protocol):
    """The experts of all ranks, seen from the tokens of this one."""

    def __call__(self, tokens: torch.Tensor, chosen: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        """[N, W] sum of the outputs of the experts that `chosen` [N, top] int64 numbers, weighted by `gates` [N, top].

        `tokens` are [N, W].
        """
        ...


class Padded:
    """Every expert has `capacity` places for the tokens of each rank; tokens that find none get no output."""

    def __init__(self, experts: Experts, capacity: int) -> None:
        self.experts, self.capacity, self.ranks = experts, capacity, dist.get_world_size()

    def __call__(self, tokens: torch.Tensor, chosen: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        own, width = len(self.experts.up), tokens.shape[1]
        places = self._places(chosen.flatten())  # [N * top]
        sent = tokens.new_zeros(self.ranks * own * self.capacity + 1, width)
        sent = sent.index_copy(0, places, tokens.repeat_interleave(chosen.shape[1], dim=0))
        received = exchange(sent[:-1]).view(self.ranks, own, self.capacity, width)
        computed = self.experts.together(received.transpose(0, 1).flatten(1, 2))  # [own, ranks * C, W]
        by_rank = computed.view(own, self.ranks, self.capacity, width).transpose(0, 1).reshape(-1, width)
        outputs = F.pad(exchange(by_rank), (0, 0, 0, 1))  # zeros for those without a place
        return _weighed(outputs[places], gates)

    def _places(self, chosen: torch.Tensor) -> torch.Tensor:
        """[n] experts -> [n] places, experts * C + the number of earlier ones; the last place if there is none left."""
        experts = self.ranks * len(self.experts.up)
        before = F.one_hot(chosen, experts).cumsum(dim=0).gather(1, chosen.unsqueeze(1)).squeeze(1) - 1  # [n]
        return torch.where(before < self.capacity, chosen * self.capacity + before, experts * self.capacity)


class Uneven:
    """Every expert of this rank gets what was routed to it."""

    def __init__(self, experts: Experts) -> None:
        self.experts, self.ranks = experts, dist.get_world_size()

    def __call__(self, tokens: torch.Tensor, chosen: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        own, top = len(self.experts.up), chosen.shape[1]
        order = chosen.flatten().argsort(stable=True)  # [N * top]
        sending = chosen.flatten().bincount(minlength=self.ranks * own)  # [ranks * own]
        receiving = _exchanged(sending)
        send, receive = (counts.view(self.ranks, own).sum(dim=1).tolist() for counts in (sending, receiving))
        received = _transfer(tokens[order // top], send, receive)  # ordered by rank, then by expert
        of_expert = torch.arange(own, device=tokens.device).repeat(self.ranks).repeat_interleave(receiving)
        by_expert = of_expert.argsort(stable=True)
        counts: list[int] = receiving.view(self.ranks, own).sum(dim=0).tolist()
        computed = self.experts.each(received[by_expert], counts)
        outputs = _transfer(computed[by_expert.argsort()], receive, send)[order.argsort()]  # [N * top, W]
        return _weighed(outputs, gates)


def _weighed(computed: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """[N * top, W] with weights [N, top] -> [N, W]."""
    return (computed.view(*gates.shape, -1) * gates.unsqueeze(2)).sum(dim=1)


def _exchanged(counts: torch.Tensor) -> torch.Tensor:
    """[ranks * own] int64: from here to everybody -> from everybody to here."""
    if dist.get_world_size() == 1:
        return counts
    received, work = start_all_to_all(counts)
    work.wait()
    return received


def _transfer(rows: torch.Tensor, send: list[int], receive: list[int]) -> torch.Tensor:
    if dist.get_world_size() == 1:
        return rows
    transfer = Blocking(start_uneven_all_to_all(send, receive), start_uneven_all_to_all(receive, send))
    return transfer.end(transfer.begin(rows))
