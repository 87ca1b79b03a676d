"""Batches of graphs for Lightning. The order of an epoch depends on the seed and the epoch only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lightning
import torch
from torch.utils.data import DataLoader, Sampler
from torch_geometric.data import Batch, HeteroData

from gnnperf.data.prepare import PreparedData
from gnnperf.data.relations import EdgeType


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


class StepDataModule(lightning.LightningDataModule):
    """Training and validation steps of a PreparedData.

    Args:
        data: the prepared steps.
        batch_size: steps per batch.
        seed: of the order.
    """

    def __init__(self, data: PreparedData, batch_size: int, seed: int) -> None:
        super().__init__()
        self.data, self.batch_size, self.seed = data, batch_size, seed

    def train_dataloader(self) -> DataLoader:
        """Shuffled training steps."""
        graphs = [step.data for step in self.data.steps["train"]]
        sampler = EpochShuffle(len(graphs), self.seed)
        return DataLoader(graphs, batch_size=self.batch_size, sampler=sampler, collate_fn=batch_of)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader:
        """Validation steps in order."""
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
