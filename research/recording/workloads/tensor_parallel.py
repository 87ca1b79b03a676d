"""Tensor parallelism (Shoeybi et al. 2019): every block is cut by heads and by hidden columns.

           x -copy-> qkv, up (own columns) -> attention, GELU -> projection, down (own rows) -sum->
forward      nothing                                                                   all-reduce
backward     all-reduce                                                                nothing

Norms, embeddings and the output layer are on every rank and need no exchange: their gradients are the same.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from research.recording.workloads.language_model import HEAD, Block

Group = dist.ProcessGroup | None


def can_be_cut(width: int, ranks: int) -> bool:
    """Whether every rank gets whole heads."""
    return width % (ranks * HEAD) == 0


def cut_blocks(model: nn.Sequential, group: Group) -> nn.Sequential:
    """The same sequence; of each block's weights this rank keeps its part. `model` is the same on every rank."""
    for part in model:
        if isinstance(part, Block):
            part.qkv = ColumnLinear(part.qkv, group, parts=3)
            part.projection = RowLinear(part.projection, group)
            part.up = ColumnLinear(part.up, group)
            part.down = RowLinear(part.down, group)
    return model


class ColumnLinear(nn.Module):
    """Own output columns of a linear layer that a group shares; the input is whole.

    Each of the `parts` layers that are stacked in one (q, k and v) is cut.
    """

    def __init__(self, whole: nn.Module, group: Group, parts: int = 1) -> None:
        super().__init__()
        assert isinstance(whole, nn.Linear)
        self.group = group
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        mine = whole.weight.detach().unflatten(0, (parts, ranks, -1))[:, rank].flatten(0, 1)  # [out / ranks, in]
        self.weight = nn.Parameter(mine.clone())
        self.bias = nn.Parameter(whole.bias.detach().unflatten(0, (parts, ranks, -1))[:, rank].flatten().clone())

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """[N, in] -> [N, out / ranks]."""
        copied: torch.Tensor = _Copy.apply(vectors, self.group)
        return F.linear(copied, self.weight, self.bias)


class RowLinear(nn.Module):
    """A linear layer without bias whose input columns are spread over ranks; the output is whole."""

    def __init__(self, whole: nn.Module, group: Group) -> None:
        super().__init__()
        assert isinstance(whole, nn.Linear)
        self.group = group
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        self.weight = nn.Parameter(whole.weight.detach().chunk(ranks, dim=1)[rank].clone())  # [out, in / ranks]

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """[N, in / ranks] -> [N, out]."""
        summed: torch.Tensor = _Sum.apply(F.linear(vectors, self.weight), self.group)
        return summed


class _Copy(torch.autograd.Function):
    """Forward: nothing. Backward: the sum of everybody's gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return vectors.view_as(vectors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        # in place: it is a product's fresh result, read by no one else
        dist.all_reduce(gradients[0], group=ctx.group)
        return gradients[0], None


class _Sum(torch.autograd.Function):
    """Forward: the sum of everybody's part. Backward: nothing."""

    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.mark_dirty(vectors)
        dist.all_reduce(vectors, group=group)
        return vectors

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None
