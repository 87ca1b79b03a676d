"""Embedding tables sharded over the ranks: whole tables, rows of every table, or columns of every table.

         indices [T, B, P]          lookup                              vectors [B, T, D]
table    all-to-all                 own tables, samples of every rank   all-to-all
row      all-gather                 own rows of T tables: partial sums  reduce-scatter
column   all-gather                 D / ranks columns of T tables       all-to-all
                                                    backward: the gradient goes the transposed way
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

from gnnperf.core import InputError
from research.recording.workloads.exchange import Transfer, start_all_gather, start_all_to_all, start_reduce_scatter
from research.recording.workloads.workload import device

if TYPE_CHECKING:
    from research.recording.workloads.dlrm import Dlrm


class Sharding(StrEnum):
    """What a rank holds: whole tables, or rows or columns of every table."""

    TABLE = "table"
    ROW = "row"
    COLUMN = "column"


class ShardedTables(nn.Module):
    """This rank's part of all tables: how many are here, and how many rows and columns of each."""

    def __init__(self, tables: int, rows: int, dim: int) -> None:
        super().__init__()
        self.ranks, self.rank = dist.get_world_size(), dist.get_rank()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(rows, dim, mode="sum", sparse=True, device=device()) for _ in range(tables)
        )

    def transfer(self, kind: type[Transfer]) -> Transfer:
        """What brings looked up vectors to their samples' rank: all-to-all, unless a subclass knows better."""
        return kind(start_all_to_all, start_all_to_all)

    def look_up(self, indices: torch.Tensor) -> torch.Tensor:
        """[T, B, P] int64 of this rank's samples -> what goes over the transfer."""
        raise NotImplementedError

    def arrange(self, received: torch.Tensor) -> torch.Tensor:
        """What came over the transfer -> vectors of this rank's samples, [B, T, D]."""
        raise NotImplementedError

    def begin(self, indices: torch.Tensor, kind: type[Transfer]) -> Callable[[], torch.Tensor]:
        """Look [T, B, P] up and begin to send; the function returned waits and gives vectors, [B, T, D]."""
        transfer = self.transfer(kind)
        begun = transfer.begin(self.look_up(indices))
        return lambda: self.arrange(transfer.end(begun))

    def _gathered(self, indices: torch.Tensor) -> torch.Tensor:
        """[T, B, P] of this rank -> [T, ranks * B, P] of all."""
        tables, batch, pooling = indices.shape
        everybodys, work = start_all_gather(indices)  # [ranks * T, B, P]
        work.wait()
        by_rank = everybodys.view(self.ranks, tables, batch, pooling)
        return by_rank.transpose(0, 1).reshape(tables, self.ranks * batch, pooling)


class TableWise(ShardedTables):
    """Every rank holds tables / ranks whole tables."""

    def __init__(self, size: "Dlrm") -> None:
        super().__init__(_share(size.tables, "tables"), size.rows, size.dim)

    def look_up(self, indices: torch.Tensor) -> torch.Tensor:
        """[T, B, P] -> [ranks * B, own, D], ordered by the rank that requested."""
        _, batch, pooling = indices.shape
        received, work = start_all_to_all(indices)
        work.wait()
        by_table = received.view(self.ranks, len(self.bags), batch, pooling).transpose(0, 1)  # [own, ranks, B, P]
        pooled = [bag(by_table[i].reshape(-1, pooling)) for i, bag in enumerate(self.bags)]  # own x [ranks * B, D]
        return torch.stack(pooled, dim=1)

    def arrange(self, received: torch.Tensor) -> torch.Tensor:
        """[ranks * B, own, D], ordered by the rank that replied -> [B, T, D]."""
        by_rank = received.view(self.ranks, -1, *received.shape[1:])  # [ranks, B, own, D]
        return by_rank.transpose(0, 1).flatten(1, 2)


class RowWise(ShardedTables):
    """Row i of every table is on rank i mod ranks: frequent rows, which have small numbers, are on all of them."""

    def __init__(self, size: "Dlrm") -> None:
        super().__init__(size.tables, -(-size.rows // dist.get_world_size()), size.dim)

    def transfer(self, kind: type[Transfer]) -> Transfer:
        """Partial sums are added up on the way."""
        return kind(start_reduce_scatter, start_all_gather)

    def look_up(self, indices: torch.Tensor) -> torch.Tensor:
        """[T, B, P] -> sums over the own rows among them, [ranks * B, T, D]."""
        requested = self._gathered(indices)  # [T, ranks * B, P]
        own = requested % self.ranks == self.rank
        ends = own.sum(dim=2).cumsum(dim=1)  # [T, ranks * B]
        starts = nn.functional.pad(ends[:, :-1], (1, 0))
        rows = requested // self.ranks
        pooled = [bag(rows[i][own[i]], starts[i]) for i, bag in enumerate(self.bags)]  # T x [ranks * B, D]
        return torch.stack(pooled, dim=1)

    def arrange(self, received: torch.Tensor) -> torch.Tensor:
        """[B, T, D] as it is."""
        return received


class ColumnWise(ShardedTables):
    """Every rank holds dim / ranks columns of every table."""

    def __init__(self, size: "Dlrm") -> None:
        super().__init__(size.tables, size.rows, _share(size.dim, "dim"))

    def look_up(self, indices: torch.Tensor) -> torch.Tensor:
        """[T, B, P] -> own columns, [ranks * B, T, D / ranks]."""
        requested = self._gathered(indices)
        return torch.stack([bag(requested[i]) for i, bag in enumerate(self.bags)], dim=1)

    def arrange(self, received: torch.Tensor) -> torch.Tensor:
        """[ranks * B, T, D / ranks], ordered by the rank that replied -> [B, T, D]."""
        by_rank = received.view(self.ranks, -1, *received.shape[1:])  # [ranks, B, T, D / ranks]
        return by_rank.permute(1, 2, 0, 3).flatten(2, 3)


class Whole(ShardedTables):
    """The only rank holds everything; nothing travels."""

    def __init__(self, size: "Dlrm") -> None:
        super().__init__(size.tables, size.rows, size.dim)

    def begin(self, indices: torch.Tensor, kind: type[Transfer]) -> Callable[[], torch.Tensor]:
        """Look [T, B, P] up; the function returned gives vectors, [B, T, D]."""
        vectors = torch.stack([bag(indices[i]) for i, bag in enumerate(self.bags)], dim=1)
        return lambda: vectors


SHARDED: dict[Sharding, Callable[["Dlrm"], ShardedTables]] = {
    Sharding.TABLE: TableWise,
    Sharding.ROW: RowWise,
    Sharding.COLUMN: ColumnWise,
}


def sharded(size: "Dlrm", sharding: Sharding) -> ShardedTables:
    return Whole(size) if dist.get_world_size() == 1 else SHARDED[sharding](size)


def _share(number: int, name: str) -> int:
    ranks = dist.get_world_size()
    if number % ranks:
        raise InputError(f"{number} cannot be shared by {ranks} ranks", where=name, allowed=f"multiples of {ranks}")
    return number // ranks
