"""Work next to transfers or collectives, and the same work by itself in the same run: what contention is fitted on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, Relation
from gnnperf.gnn.data.recordings import Recording, read_recordings
from gnnperf.graph import ExecutionGraph, measured_end_us
from research.evaluation.loading import as_recorded, machine_costs, without_profiler_cost

DATASET = Path("datasets/cpu-gloo")
PEERS = ("rank", "node_type", "segment", "op_name", "event_name", "input_dims", "phase", "ordinal", "num_siblings")
MIN_PEERS, MAX_SPREAD, MIN_CPU_US = 3, 1.5, 50.0


@dataclass(frozen=True)
class Compared:
    """Where the work of a graph ran next to transfers, as recorded; all [num_nodes].

    Attributes:
        graph: the recording.
        overlap_us: time of a node next to transfers of its rank; of a transfer, next to other transfers.
        isolated_us: median latency of the same work of the same rank where nothing ran next to it; NaN unknown.
        moving: (node, transfer, overlap_us) of every pair [3, num_pairs].
    """

    graph: ExecutionGraph
    overlap_us: np.ndarray
    isolated_us: np.ndarray
    moving: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """[num_nodes] bool: work next to a transfer whose latency by itself is known."""
        return (self.overlap_us > 0) & ~np.isnan(self.isolated_us)


def compared(graph: ExecutionGraph, least_us: float) -> Compared:
    """Overlaps of a recording; peers are looked up for work of `least_us` and more."""
    nodes = graph.nodes
    start, end = nodes["start_us"].to_numpy(), measured_end_us(nodes)
    pairs = np.concatenate([_pairs(graph, rank, start, end) for rank in graph.ranks], axis=1)
    overlap = np.bincount(pairs[0].astype(np.int64), pairs[2], minlength=graph.num_nodes)
    return Compared(graph, overlap, _isolated(nodes, overlap, least_us), pairs)


def _pairs(graph: ExecutionGraph, rank: int, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[3, num_pairs] (node, transfer, overlap_us) of one rank's work and other transfers."""
    kind, of = graph.nodes["node_type"].to_numpy().astype(str), graph.nodes["rank"].to_numpy()
    joins = graph.edges[(graph.edges["relation"] == Relation.JOINS).to_numpy()]
    mine = np.unique(joins["dst"].to_numpy()[of[joins["src"].to_numpy()] == rank])
    mine = mine[~np.isnan(end[mine]) & (kind[mine] == NodeType.COLLECTIVE)]
    works = [NodeType.COMPUTE, NodeType.MEMORY, *([] if graph.runs_on_gpu else [NodeType.HOST])]
    work = np.flatnonzero(np.isin(kind, works) & (of == rank) & ~np.isnan(end))
    result = [np.zeros((3, 0))]
    for transfer in mine.tolist():
        node = np.r_[work, mine[mine != transfer]]
        shared = np.minimum(end[node], end[transfer]) - np.maximum(start[node], start[transfer])
        node, shared = node[shared > 0], shared[shared > 0]
        result.append(np.stack([node, np.full(len(node), transfer), shared]))
    return np.concatenate(result, axis=1)


def _isolated(nodes: pd.DataFrame, overlap_us: np.ndarray, least_us: float) -> np.ndarray:
    """[num_nodes] median latency of peers that nothing ran next to; NaN without enough peers that agree."""
    keys = pd.DataFrame({c: nodes[c].astype(object).fillna("") for c in PEERS})
    of_work = nodes["node_type"].isin([NodeType.COMPUTE, NodeType.MEMORY, NodeType.HOST]) & (nodes["step"] >= 0)
    number = keys.groupby(list(PEERS), sort=False).ngroup().to_numpy()
    latency = nodes["latency_us"].where(of_work & (overlap_us == 0))
    peers = latency.groupby(number).agg(["median", "count"])
    low, high = (latency.groupby(number).quantile(q) for q in (0.1, 0.9))
    good = (peers["count"] >= MIN_PEERS) & (high <= MAX_SPREAD * low) & (peers["median"] >= least_us)
    isolated = peers["median"].where(good).to_numpy()[number]
    untyped = ((nodes["node_type"] != NodeType.HOST) & nodes["input_dims"].isna()).to_numpy()
    return np.where(of_work.to_numpy() & ~untyped, isolated, np.nan)


def split_of(axis: str) -> dict[str, str]:
    """Recording -> part (train, val, test) of a split of the recorded data set."""
    parts = json.loads((DATASET / "splits.json").read_text(encoding="utf-8"))[axis]
    return {name: part for part, names in parts.items() for name in names}


def cpu_recordings() -> Iterator[tuple[Recording, ExecutionGraph]]:
    """Recordings of several ranks, without the profiler's cost."""
    result = [r for repeats in read_recordings(DATASET).values() for r in repeats.values()]
    load = without_profiler_cost(as_recorded(), machine_costs(result))
    yield from ((r, load(r)) for r in result if r.world_size > 1)
