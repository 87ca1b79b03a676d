"""A training loop of two ranks in a few nodes, drawn for the tests of edits.

rank 0   |T1 5|mm 10|T1 5|issue 5|T1 2|bw 20|T1 3 ·waits·|opt 5|T1 1 ...
                           `-(arrive)-.            .-(exit)
                                       >[transfer 30]
rank 1   |T1 5|mm 14|T1 5|issue 5|T1 2|bw 20|T1 3 ·waits·|opt 5|T1 1 ...

Each rank issues its part at the start of `issue`. The transfer begins when the later rank arrives.
"""

import pandas as pd
from toys import make_graph

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph, StepLabel, content_keys

MM_US = (10.0, 14.0)
TRANSFER_US = 30.0
GAP_MM, MM, GAP_ISSUE, ISSUE, GAP_BW, BW, GAP_OPT, OPT, END, ARRIVE, EXIT = range(11)
MM_DIMS = "[[4,4],[4,4]]"


def loop(
    num_steps: int = 2, *, mm_us: tuple[float, float] = MM_US, transfer_us: float = TRANSFER_US, dims: str = MM_DIMS
) -> ExecutionGraph:
    """The drawing, `num_steps` times; the first rank of the next step starts when its thread is through."""
    rows: list[dict[str, object]] = []
    edges: list[tuple[int, int, str]] = []
    last: dict[int, int] = {}
    for step in range(num_steps):
        parts = []
        for rank in (0, 1):
            base = len(rows)
            rows += _rank_rows(rank, step, mm_us[rank], dims)
            edges += _rank_edges(base)
            if rank in last:
                edges.append((last[rank], base, Relation.FOLLOWS))
            last[rank] = base + END
            parts.append(base)
        rows.append({"rank": -1, "step": step, "node_type": NodeType.COLLECTIVE, "collective": "all_reduce",
                     "op_name": "c10d::allreduce_", "message_bytes": 64.0, "latency_us": transfer_us})  # fmt: skip
        for base in parts:
            edges += [(base + ARRIVE, len(rows) - 1, Relation.JOINS), (len(rows) - 1, base + EXIT, Relation.RELEASES)]
    labels = tuple(StepLabel(k, f"ProfilerStep#{k}", None, 0.0, (0.0, 0.0), (0.0, 0.0)) for k in range(num_steps))
    graph = make_graph(rows, edges, ranks=(0, 1), steps=labels)
    keys = content_keys(graph.nodes, ("node_type", "op_name", "segment"))
    return ExecutionGraph(**{**graph.__dict__, "nodes": graph.nodes.assign(content_key=keys)})


def _rank_rows(rank: int, step: int, mm_us: float, dims: str) -> list[dict[str, object]]:
    host = {"rank": rank, "step": step, "thread": 0, "node_type": NodeType.HOST}
    compute = {**host, "node_type": NodeType.COMPUTE, "device": 0}
    gap = {**host, "segment": Segment.T1}
    comm = {"rank": rank, "step": step, "node_type": NodeType.COMM, "device": 0, "stream": 0, "phase": "forward",
            "op_name": "c10d::allreduce_", "collective": "all_reduce", "message_bytes": 64.0,
            "latency_us": 0.0}  # fmt: skip
    return [
        {**gap, "op_name": "aten::mm", "latency_us": 5.0},
        {**compute, "op_name": "aten::mm", "input_dims": dims, "latency_us": mm_us},
        {**gap, "op_name": "c10d::allreduce_", "latency_us": 5.0},
        {**host, "op_name": "c10d::allreduce_", "segment": Segment.T5, "latency_us": 5.0},
        {**gap, "op_name": "aten::bw", "phase": "backward", "latency_us": 2.0},
        {**compute, "op_name": "aten::bw", "phase": "backward", "latency_us": 20.0},
        {**gap, "op_name": "aten::opt", "phase": "optimizer", "latency_us": 3.0},
        {**compute, "op_name": "aten::opt", "phase": "optimizer", "latency_us": 5.0},
        {**gap, "op_name": "step_end", "phase": "other", "latency_us": 1.0},
        {**comm, "segment": Segment.ARRIVE},
        {**comm, "segment": Segment.EXIT},
    ]


def _rank_edges(base: int) -> list[tuple[int, int, str]]:
    chain = [(base + n, base + n + 1, Relation.FOLLOWS) for n in range(END)]
    return [*chain, (base + ISSUE, base + ARRIVE, Relation.LAUNCHES), (base + EXIT, base + GAP_OPT, Relation.WAITS)]


def of(graph: ExecutionGraph, rank: int, step: int, op: str) -> pd.DataFrame:
    """A rank's nodes of one op in one step, in order."""
    nodes = graph.nodes
    return nodes[(nodes["rank"] == rank) & (nodes["step"] == step) & (nodes["op_name"] == op)]
