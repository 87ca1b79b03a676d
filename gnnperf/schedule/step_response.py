"""Response: scale one kind of node and see what the makespan does.

A graph without wait edges replays well and answers every what-if wrongly: with its device work gone, its host still
sleeps for the recorded time. The ablation next to each answer shows how much of the response the wait edges carry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph, measured_lags
from gnnperf.schedule.longest_path import schedule
from gnnperf.schedule.medians import fit_medians, in_peer_wait, measured_latency_us


@dataclass(frozen=True)
class Response:
    """Makespans relative to the unscaled one.

    Attributes:
        base_us: makespan of the whole window as scheduled from measured latencies.
        ratio: scaling -> makespan / base_us.
        num_unknown: nodes and gaps that were never measured and take no time here.
    """

    base_us: float
    ratio: dict[str, float]
    num_unknown: int


def response(graph: ExecutionGraph) -> Response:
    """Scale compute, collectives and one rank's compute over the whole recorded window."""
    kind, rank = graph.nodes["node_type"].to_numpy(), graph.nodes["rank"].to_numpy()
    compute, transfer = kind == NodeType.COMPUTE, _communication(graph)
    scalings = {
        "compute x 0": (compute, 0.0),
        "compute x 0.5": (compute, 0.5),
        "compute x 2": (compute, 2.0),
        "collectives x 0": (transfer, 0.0),
        "collectives x 10": (transfer, 10.0),
        f"rank {graph.ranks[0]} compute x 2": (compute & (rank == graph.ranks[0]), 2.0),
    }
    latency, lag = measured_latencies(graph)
    num_unknown = int(np.isnan(latency).sum() + np.isnan(lag).sum())
    latency, lag = np.nan_to_num(latency), np.nan_to_num(lag)
    ready = _rank_offsets(graph)
    base = schedule(graph, latency, lag, ready_us=ready).makespan_us
    scaled = {
        name: schedule(graph, np.where(nodes, latency * factor, latency), lag, ready_us=ready).makespan_us
        for name, (nodes, factor) in scalings.items()
    }
    return Response(base, {name: value / base for name, value in scaled.items()}, num_unknown)


def without_waits(graph: ExecutionGraph) -> ExecutionGraph:
    """The ablation: no waits for device work, of the host or of another stream; waited time is the host's own again."""
    nodes, edges = graph.nodes, graph.edges
    from_device = (nodes["stream"] >= 0).to_numpy()[edges["src"].to_numpy()]
    retained = edges[~(from_device & (edges["relation"] == Relation.WAITS).to_numpy())].reset_index(drop=True)
    blocked = np.where(nodes["thread"] >= 0, nodes["blocked_us"], 0.0)
    nodes = nodes.assign(
        latency_us=nodes["latency_us"] + blocked,
        start_us=nodes["start_us"] - blocked,
        blocked_us=nodes["blocked_us"] - blocked,
    )
    return replace(graph, nodes=nodes, edges=retained.assign(lag_us=measured_lags(nodes, retained)))


def measured_latencies(graph: ExecutionGraph) -> tuple[np.ndarray, np.ndarray]:
    """([num_nodes] latencies, [num_edges] lags): as measured where known, class medians elsewhere, else NaN.

    With its gaps kept, either graph reproduces the recording; they differ in what moves when a node changes.

    The wait for untraced peers and their transfer count as one, with their measured sum.
    """
    medians = fit_medians(graph, np.ones(graph.num_nodes, dtype=bool))
    latency = measured_latency_us(graph)
    latency = np.where(np.isnan(latency) & ~in_peer_wait(graph), medians.latency_us(graph), latency)
    lag = graph.edges["lag_us"].to_numpy()
    parts = in_peer_wait(graph) | graph.nodes["node_type"].isin([NodeType.DEVICE, NodeType.LINK]).to_numpy()
    return np.where(np.isnan(latency) & parts, 0.0, latency), np.where(np.isnan(lag), medians.lag_us(graph), lag)


def _communication(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: transfers, and where peers were not traced wait and transfer as one."""
    peer = (graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()
    return (graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy() | peer


def _rank_offsets(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] each rank begins its first step when it did."""
    first = graph.steps[0].rank_start_us
    start_of = {r: s - min(first) for r, s in zip(graph.ranks, first, strict=True)}
    return np.array([start_of.get(r, 0.0) for r in graph.nodes["rank"].tolist()])
