"""Batches of graphs for Lightning."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import lightning
import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from torch_geometric.data import HeteroData

from gnnperf.core import InputError
from gnnperf.gnn.data.prepare import PreparedData, Step
from gnnperf.gnn.data.segments import SEGMENT_HOPS, WORK
from gnnperf.gnn.settings import DataConfig

TAKEN = ("x", "codes", "target", "steady_target", "time_share", "known_collective_model")  # of work nodes

# The order of an epoch, from seed and epoch only, and what each of several processes takes of it.


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

    A batch (`batch_size` steps) is as large as with one process, so the same settings fit. A last batch with fewer
    steps than processes joins the one before it: a process without work would hold up the others. The order of an
    epoch is the same in all processes.

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


class Examples(Dataset[HeteroData]):
    """Graphs that fit `max_nodes`, and segments of those that do not, read or cut when they are requested.

    A segment sees `num_hops` beyond its own nodes (segments.SegmentedGraph).
    """

    def __init__(self, steps: Sequence[Step], max_nodes: int, num_hops: int) -> None:
        self._parts = [make for step in steps for make in step.examples(max_nodes, num_hops)]

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> HeteroData:
        return self._parts[index]()


class StepDataModule(lightning.LightningDataModule):
    """Training and validation steps of a PreparedData, for process `rank` of `count`.

    `num_hops` are the layers of message passing of the network that trains; segments see SEGMENT_HOPS of them.

    Raises:
        InputError: too few steps for so many processes.
    """

    def __init__(
        self, data: PreparedData, config: DataConfig, num_hops: int, seed: int, rank: int = 0, count: int = 1
    ) -> None:
        super().__init__()
        self.batch_size = config.batch_size
        max_nodes = config.max_nodes_per_batch // config.batch_size
        hops = min(num_hops, SEGMENT_HOPS)
        self.train, self.val = (Examples(data.steps[part], max_nodes, hops) for part in ("train", "val"))
        self.batches = SharedBatches(EpochShuffle(len(self.train), seed), config.batch_size, rank, count)

    def train_dataloader(self) -> DataLoader:
        """Shuffled training steps, this process's share."""
        return DataLoader(self.train, batch_sampler=self.batches, collate_fn=batch_of)

    def val_dataloader(self) -> DataLoader:
        """All validation steps in order, in every process: all agree on which epoch was best."""
        return DataLoader(self.val, batch_size=self.batch_size, shuffle=False, collate_fn=batch_of)


def batch_of(graphs: Sequence[HeteroData]) -> HeteroData:
    """One disconnected graph, with what training takes of work nodes; `num_graphs` is their number.

    PyG's Batch, which keeps what each graph was, takes three times as long, a tenth of a training.
    """
    batch, first = HeteroData(num_graphs=len(graphs)), dict[str, list[int]]()  # first: rows where each graph begins
    for node_type in WORK:
        stores = [graph[node_type] for graph in graphs]
        for name in TAKEN:
            if name in stores[0]:
                batch[node_type][name] = torch.cat([store[name] for store in stores])
        first[node_type] = list(accumulate((len(store.x) for store in stores), initial=0))
    for edge_type in graphs[0].edge_types:
        src, _, dst = edge_type
        if src in first and dst in first:
            ends = [graph[edge_type].edge_index for graph in graphs]  # [2, num_edges] each
            moved = [of_graph + torch.tensor([[first[src][place]], [first[dst][place]]])
                     for place, of_graph in enumerate(ends) if of_graph.shape[1]]  # fmt: skip
            if moved:
                batch[edge_type].edge_index = torch.cat(moved, dim=1)
    return batch
