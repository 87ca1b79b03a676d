"""Scale one kind of node and judge the makespan; next to it the same graph without waits for the device.

A graph without wait edges replays well and answers every what-if wrongly: with its device work gone, its host still
sleeps for the recorded time. The ablation shows how much of the response the wait edges carry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph, measured_lags
from gnnperf.schedule import measured_latencies, rank_offsets_us, schedule
from research.benchmarks._public_runs import graph_recordings, imported

SCALINGS = (
    "compute x 0",
    "compute x 0.5",
    "compute x 2",
    "collectives x 0",
    "collectives x 10",
    "one rank's compute x 2",
)


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
    ready = rank_offsets_us(graph)
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


def _communication(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] bool: transfers, and where peers were not traced wait and transfer as one."""
    peer = (graph.nodes["segment"] == Segment.PEER_WAIT).to_numpy()
    return (graph.nodes["node_type"] == NodeType.COLLECTIVE).to_numpy() | peer


def main() -> None:
    """Print makespan / unscaled makespan, with and without wait edges."""
    print("| run | " + " | ".join(SCALINGS) + " |")
    print("|---" * (len(SCALINGS) + 1) + "|")
    for recording in graph_recordings():
        _, graph = imported(recording)
        full, ablated = response(graph), response(without_waits(graph))
        pairs = zip(full.ratio.values(), ablated.ratio.values(), strict=True)
        records = " | ".join(f"{a:.3f} ({b:.3f})" for a, b in pairs)
        if full.num_unknown:
            records += f" {full.num_unknown} nodes and gaps never measured"
        print(f"| {recording.name} | {records} |", flush=True)
    print("\nmakespan relative to the unscaled one; in brackets without edges that wait for device work")


if __name__ == "__main__":
    main()
