"""Batches of graphs for Lightning. The order of an epoch depends on the seed and the epoch only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lightning
import torch
from torch.utils.data import DataLoader, Sampler
from torch_geometric.data import Batch, HeteroData

from gnnperf.data.prepare import PreparedData
from gnnperf.data.relations import EdgeType
from gnnperf.errors import InputError


class EpochShuffle(Sampler[int]):
    """A permutation drawn from (seed, epoch), so that a resumed run goes on as if it had never stopped.

    Lightning calls `set_epoch` before every epoch.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.epoch = size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        return iter(torch.randperm(self.size, generator=generator).tolist())


class SharedBatches(Sampler[list[int]]):
    """What one of several processes takes of every batch: each step of an epoch goes to exactly one process.

    A batch is as large as with one process, so the same settings fit. A last batch with fewer steps than processes
    joins the one before it: a process without work would hold up the others.

    Args:
        sampler: the order of an epoch, the same in all processes.
        batch_size: steps per batch, over all processes.
        rank: this process.
        count: processes.

    Raises:
        InputError: fewer steps, or steps per batch, than processes.
    """

    def __init__(self, sampler: EpochShuffle, batch_size: int, rank: int = 0, count: int = 1) -> None:
        if min(batch_size, len(sampler)) < count:
            raise InputError(f"{count} processes share batches of {min(batch_size, len(sampler))} steps",
                             where="data.batch_size", remedy="larger batches, or fewer processes")  # fmt: skip
        self.sampler, self.batch_size, self.rank, self.count = sampler, batch_size, rank, count

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest >= self.count)

    def __iter__(self) -> Iterator[list[int]]:
        order = list(self.sampler)
        ends = [*range(self.batch_size, len(self) * self.batch_size, self.batch_size), len(order)]
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            yield order[begin + self.rank : end : self.count]


class StepDataModule(lightning.LightningDataModule):
    """Training and validation steps of a PreparedData.

    Args:
        data: the prepared steps.
        batch_size: steps per batch, over all processes.
        seed: of the order.
        rank: this process.
        count: processes that train together.

    Raises:
        InputError: too few steps for so many processes.
    """

    def __init__(self, data: PreparedData, batch_size: int, seed: int, rank: int = 0, count: int = 1) -> None:
        super().__init__()
        self.data, self.batch_size = data, batch_size
        self.batches = SharedBatches(EpochShuffle(len(data.steps["train"]), seed), batch_size, rank, count)

    def train_dataloader(self) -> DataLoader:
        """Shuffled training steps, this process's share."""
        graphs = [step.data for step in self.data.steps["train"]]
        return DataLoader(graphs, batch_sampler=self.batches, collate_fn=batch_of)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader:
        """All validation steps in order, in every process: all agree on which epoch was best."""
        return in_order([step.data for step in self.data.steps["val"]], self.batch_size)


def in_order(graphs: Sequence[HeteroData], batch_size: int) -> DataLoader:
    """Batches in the order given."""
    return DataLoader(list(graphs), batch_size=batch_size, shuffle=False, collate_fn=batch_of)  # type: ignore[arg-type]


def batch_of(graphs: Sequence[HeteroData]) -> Batch:
    """One disconnected graph. Edge types that none of the graphs uses say nothing and would cost most of the time."""
    used = {t for g in graphs for t in g.edge_types if g[t].edge_index.shape[1]}
    return Batch.from_data_list([_with_edge_types(g, used) for g in graphs])


def _with_edge_types(graph: HeteroData, kept: set[EdgeType]) -> HeteroData:
    """A shallow copy with these edge types only, in the graph's order."""
    copy = HeteroData()
    for node_type in graph.node_types:
        copy[node_type].update(graph[node_type].to_dict())
    for edge_type in graph.edge_types:
        if edge_type in kept:
            copy[edge_type].edge_index = graph[edge_type].edge_index
    return copy
