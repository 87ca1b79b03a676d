"""Hand-made graphs of a few nodes, shared by the tests.

rank 0 host  [T2 10][T4 5][T3 10]          [T1 5]
rank 0 gpu          [gemm 100]  (arrive)---.
                                            >[ all_reduce 50 ](exit)
rank 1 gpu          [gemm 120]  (arrive)---'
rank 1 host  [T2 10][T4 5][T3 10]          [T1 5]  <- waits for the exit of its rank
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.core import Evidence, NodeType, Relation, Segment, schema
from gnnperf.graph import ExecutionGraph, StepLabel, concat_tables, take

DEFAULTS: dict[str, object] = {
    "rank": 0, "step": 0, "thread": -1, "device": -1, "stream": -1, "op_name": None, "event_name": None,
    "segment": None, "phase": "forward", "family": "unknown", "dtype": None, "input_dims": None, "ordinal": 0,
    "num_siblings": 1, "flops": np.nan, "bytes": np.nan, "message_bytes": np.nan, "group_size": -1,
    "group_first": -1, "group_stride": -1,
    "collective": None, "event_id": -1, "content_key": 0, "start_us": np.nan, "latency_us": np.nan,
    "blocked_us": 0.0, "opened_ops": 0, "opened_ranges": 0, "grid": None, "block": None, "registers": -1,
    "shared_bytes": -1, "occupancy_percent": -1,
}  # fmt: skip


def edges_of(graph: ExecutionGraph, relation: str) -> set[tuple[int, int]]:
    """(source, target) of every edge of a relation."""
    result = graph.edges[(graph.edges["relation"] == relation).to_numpy()]
    return set(zip(result["src"].tolist(), result["dst"].tolist(), strict=True))


def make_graph(
    rows: list[dict[str, object]],
    edges: Sequence[tuple[int, int, str]],
    *,
    ranks: tuple[int, ...] = (0,),
    steps: tuple[StepLabel, ...] = (),
    lags: dict[tuple[int, int], tuple[str, float]] | None = None,
    device_name: str = "Tesla V100-SXM2-32GB",
) -> ExecutionGraph:
    """A graph from partial node rows and (src, dst, relation) edges; `lags` maps (src, dst) to (class, us)."""
    nodes = _table([{**DEFAULTS, **row, "node_id": i} for i, row in enumerate(rows)], schema.NODE_COLUMNS)
    lag = {(src, dst): (lags or {}).get((src, dst), (None, np.nan)) for src, dst, _ in edges}
    frame: list[dict[str, object]] = [
        {"src": src, "dst": dst, "relation": relation, "evidence": Evidence.ID, "lag_class": lag[src, dst][0],
         "lag_us": lag[src, dst][1]} for src, dst, relation in edges
    ]  # fmt: skip
    return ExecutionGraph(
        name="toy", nodes=nodes, edges=_table(frame, schema.EDGE_COLUMNS), steps=steps, ranks=ranks,
        world_size=len(ranks), device_names=(device_name,) * len(ranks), counts={}, fingerprint="toy",
    ).validate()  # fmt: skip


def _table(rows: list[dict[str, object]], columns: tuple[schema.Column, ...]) -> pd.DataFrame:
    """Column by column: many times faster than a frame of rows and its `astype`."""
    values = {column.name: [row[column.name] for row in rows] for column in columns}
    return pd.DataFrame({
        column.name: pd.Categorical([str(v) if isinstance(v, str) else None for v in values[column.name]])
        if column.dtype == "category"
        else np.array(values[column.name], dtype=column.dtype)
        for column in columns
    })  # fmt: skip


def two_rank_graph() -> ExecutionGraph:
    """The graph drawn above. Makespan without lags: 10 + 120 + 50 + 5 = 185 us (a launch constrains start to start)."""
    rows: list[dict[str, object]] = []
    edges: list[tuple[int, int, str]] = []
    for rank, gemm_us in ((0, 100.0), (1, 120.0)):
        base = len(rows)  # T2, T4, T3, gemm, arrive, exit, T1
        host = {"rank": rank, "node_type": NodeType.HOST, "thread": 0, "op_name": "aten::mm"}
        rows += [
            {**host, "segment": Segment.T2, "latency_us": 10.0, "start_us": 0.0},
            {**host, "segment": Segment.T4, "latency_us": 5.0, "start_us": 10.0, "event_name": "cudaLaunchKernel"},
            {**host, "segment": Segment.T3, "latency_us": 10.0, "start_us": 15.0},
            {"rank": rank, "node_type": NodeType.COMPUTE, "device": rank, "stream": 0, "op_name": "aten::mm",
             "family": "gemm", "dtype": "float32", "input_dims": "[[512,512],[512,512]]", "flops": 2.0 * 512**3,
             "bytes": 3.0 * 4 * 512**2, "latency_us": gemm_us, "start_us": 10.0, "event_name": "volta_sgemm"},
            {"rank": rank, "node_type": NodeType.COMM, "device": rank, "stream": 0, "segment": Segment.ARRIVE,
             "op_name": "c10d::allreduce_", "collective": "all_reduce", "group_size": 2, "message_bytes": 4.0 * 512**2,
             "family": "collective", "dtype": "float32", "latency_us": 0.0, "start_us": 10.0 + gemm_us},
            {"rank": rank, "node_type": NodeType.COMM, "device": rank, "stream": 0, "segment": Segment.EXIT,
             "op_name": "c10d::allreduce_", "collective": "all_reduce", "group_size": 2, "message_bytes": 4.0 * 512**2,
             "family": "collective", "dtype": "float32", "latency_us": 0.0, "start_us": 180.0},
            {**host, "segment": Segment.T1, "op_name": "cudaDeviceSynchronize", "latency_us": 5.0, "start_us": 180.0},
        ]  # fmt: skip
        edges += [
            (base, base + 1, Relation.FOLLOWS), (base + 1, base + 2, Relation.FOLLOWS),
            (base + 1, base + 3, Relation.LAUNCHES), (base + 3, base + 4, Relation.FOLLOWS),
            (base + 2, base + 6, Relation.FOLLOWS), (base + 5, base + 6, Relation.WAITS),
        ]  # fmt: skip
    collective = len(rows)
    rows.append({"rank": -1, "node_type": NodeType.COLLECTIVE, "op_name": "c10d::allreduce_",
                 "collective": "all_reduce", "group_size": 2, "message_bytes": 4.0 * 512**2,
                 "family": "collective", "dtype": "float32", "latency_us": 50.0, "start_us": 130.0})  # fmt: skip
    for base in (0, 7):
        edges += [(base + 4, collective, Relation.JOINS), (collective, base + 5, Relation.RELEASES)]
    rows += [
        {"node_type": NodeType.DEVICE, "rank": 0, "device": 0, "step": -1, "op_name": "Tesla V100-SXM2-32GB"},
        {"node_type": NodeType.DEVICE, "rank": 1, "device": 1, "step": -1, "op_name": "Tesla V100-SXM2-32GB"},
        {"node_type": NodeType.LINK, "rank": -1, "step": -1, "op_name": "intra"},
    ]
    device0, link = collective + 1, collective + 3
    edges += [(link, device0, Relation.CONNECTS), (link, device0 + 1, Relation.CONNECTS)]
    edges += [(base + n, device0 + r, Relation.RUNS_ON) for r, base in ((0, 0), (1, 7)) for n in (3, 4, 5)]
    edges += [(base + 4, link, Relation.CROSSES) for base in (0, 7)]
    label = StepLabel(0, "ProfilerStep#0", None, 185.0, (0.0, 0.0), (185.0, 185.0))
    return make_graph(rows, edges, ranks=(0, 1), steps=(label,))


def several_steps(*labels: StepLabel) -> ExecutionGraph:
    """The graph drawn above once per label, without edges between the steps; the hardware is there once."""
    graph = two_rank_graph()
    work = (graph.nodes["step"] >= 0).to_numpy()
    nodes, edges, first = [], [], 0
    for label in labels:
        own, between = take(graph.nodes, graph.edges, work | (first == 0))
        step = own["step"].where(own["step"] < 0, label.step).astype("int32")
        nodes.append(own.assign(step=step, node_id=own["node_id"] + first))
        edges.append(between.assign(src=between["src"] + first, dst=between["dst"] + first))
        first += len(own)
    return replace(graph, nodes=concat_tables(nodes), edges=concat_tables(edges), steps=labels).validate()
