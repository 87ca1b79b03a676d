"""Work next to transfers or collectives, and the same work by itself in the same run: what contention is fitted on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.gnn.data.recordings import Recording, read_recordings
from gnnperf.graph import ExecutionGraph, build_graph, measured_end_us
from gnnperf.schedule.resource_demands import COMPUTE_BOUND
from gnnperf.trace import read_run
from gnnperf.trace.public.catalog import load_catalog
from research.benchmarks._public_runs import mirror
from research.evaluation.loading import as_recorded, machine_costs, without_profiler_cost

DATASET = Path("datasets/cpu-gloo")
PEERS = ("rank", "node_type", "segment", "op_name", "event_name", "input_dims", "phase", "ordinal", "num_siblings")
MIN_PEERS, MAX_SPREAD, MIN_CPU_US, MIN_GPU_US = 3, 1.5, 50.0, 10.0


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


# Runs with collectives on a stream of their own. All others of the catalog have none, or none next to kernels.
RUNS = (
    "dlrm-8", "megatron-tp2", "hta/df_index_resolver", "hta/nccl_parser_config", "hta/trace_diff/control",
    "hta/negative_queue_length_values_check", "torchrec/log/resnet18", "torchrec/trace/sst_long_a2a_optimizer",
    "torchrec/trace/sst_long_a2a_optimizer_3", "torchrec/trace/sst_long_a2a_optimizer_4",
    "torchrec/trace/sst_long_a2a_optimizer_5_qcomm/a", "torchrec/trace/sst_long_a2a_optimizer_5_qcomm/b",
    "torchrec/trace/sst_sleep_pl_dense_after_backward_2", "tracelens/mi300/resnet_act_checkpoint.json.gz",
)  # fmt: skip
WITHIN = 0.95  # share of a kernel's time next to a collective from which it counts as next to it
KEY = ("op_name", "event_name", "input_dims", "ordinal", "num_siblings", "bytes")


def gpu_runs() -> Iterator[tuple[str, str, ExecutionGraph]]:
    """(run, GPU, graph) of public runs with collectives."""
    entries = [e for e in load_catalog() if e.kind in ("kineto", "archive") and e.gpu]
    for run in RUNS:
        files = [e for e in entries if e.run == run]
        try:
            paths = [mirror() / e.name for e in files]
            yield run, str(files[0].gpu), build_graph(read_run(paths if len(paths) > 1 else paths[0], name=run))
        except InputError as error:
            print(f"{run}: left out, {error}")


def kernel_ratios(graph: ExecutionGraph) -> pd.DataFrame:
    """One row per op, shape and kernel of a run: median latency next to a collective's kernel / by itself.

    A collective's kernel counts from its start, its wait for peers included: it holds its multiprocessors meanwhile,
    and traces of one rank do not tell the two apart.
    """
    nodes = graph.nodes
    kernels = nodes["node_type"].isin([NodeType.COMPUTE, NodeType.MEMORY]).to_numpy()
    usable = kernels & nodes["input_dims"].notna().to_numpy() & (nodes["latency_us"] > 0).to_numpy()
    rows = nodes[usable].assign(overlap_us=_with_collectives(graph)[usable])
    keys = [rows[c].astype(object).fillna("") for c in KEY]
    isolated = rows["latency_us"].where(rows["overlap_us"] == 0).groupby(keys)
    result = pd.DataFrame(
        {
            "alone_us": isolated.median(),
            "num_alone": isolated.count(),
            "low": isolated.quantile(0.1),
            "high": isolated.quantile(0.9),
            "beside_us": rows["latency_us"]
            .where(rows["overlap_us"] > WITHIN * rows["latency_us"])
            .groupby(keys)
            .median(),
            "compute_bound": rows["family"].isin(COMPUTE_BOUND).groupby(keys).first(),
        }
    )
    agree = (result["num_alone"] >= 2) & (result["high"] <= 1.25 * result["low"]) & (result["alone_us"] > MIN_GPU_US)
    result = result[agree & result["beside_us"].notna()]
    return result.assign(ratio=result["beside_us"] / result["alone_us"]).reset_index(drop=True)


def _with_collectives(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] us of each node next to kernels of collectives of its rank."""
    nodes = graph.nodes
    start, latency = nodes["start_us"].to_numpy(), np.nan_to_num(nodes["latency_us"].to_numpy())
    end, rank = start + latency, nodes["rank"].to_numpy()
    overlap = np.zeros(graph.num_nodes)
    for arrival in np.flatnonzero((nodes["segment"] == Segment.ARRIVE).to_numpy()).tolist():
        shared = np.minimum(end, end[arrival + 1]) - np.maximum(start, start[arrival])  # its exit is the next node
        overlap += np.where(rank == rank[arrival], np.maximum(np.nan_to_num(shared), 0.0), 0.0)
    return overlap


def transfer_ratios(graph: ExecutionGraph) -> pd.DataFrame:
    """One row per kind and size of a run: median transfer mostly next to kernels of all its ranks / next to none."""
    result = compared(graph, MIN_GPU_US)
    kind = graph.nodes["node_type"].to_numpy().astype(str)
    node, transfer = result.moving[:2].astype(np.int64)
    kernels = kind[node] != NodeType.COLLECTIVE
    overlap = np.bincount(transfer[kernels], result.moving[2][kernels], minlength=graph.num_nodes)
    joins = graph.edges.loc[(graph.edges["relation"] == Relation.JOINS).to_numpy(), "dst"]
    rows = graph.nodes[(kind == NodeType.COLLECTIVE) & graph.nodes["latency_us"].notna().to_numpy()]
    rows = rows.assign(
        share=overlap[rows.index] / rows["latency_us"] / np.bincount(joins, minlength=graph.num_nodes)[rows.index]
    )
    keys = [rows["collective"].astype(object), rows["message_bytes"]]
    result_us = pd.DataFrame({
        "alone_us": rows["latency_us"].where(rows["share"] < 0.1).groupby(keys).median(),
        "beside_us": rows["latency_us"].where(rows["share"] > 0.5).groupby(keys).median(),
    })  # fmt: skip
    result_us = result_us.reset_index(drop=True).dropna()
    return result_us.assign(ratio=result_us["beside_us"] / result_us["alone_us"])
