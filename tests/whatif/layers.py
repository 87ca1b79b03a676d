"""One layer of a language model on one rank as a graph, for any batch: what the edit of the batch is held against.

ids [b,s] -> embedding -> linear [bs,w] x [v,w] -> loss -> gradients -> all_reduce (flat) -> optimizer
                      `-> all_to_all [bs,w]
"""

from __future__ import annotations

import json

from toys import make_graph

from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.cost import op_cost
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel

EMBEDDING, LINEAR, LOSS, GRADIENT_IN, GRADIENT_W, UPDATE, SEND, ARRIVE, EXIT, TRANSFER = range(10)


def layer(batch: int, length: int, width: int, vocabulary: int, *, sends: bool = True) -> ExecutionGraph:
    """The graph. With `sends` the message is of activations, else the flat gradient."""
    tokens = batch * length
    calls: list[tuple[str, str, list[object]]] = [
        ("aten::embedding", "forward", [[vocabulary, width], [batch, length], [], [], []]),
        ("aten::linear", "forward", [[tokens, width], [vocabulary, width], [vocabulary]]),
        ("aten::_log_softmax", "forward", [[tokens, vocabulary], [], []]),
        ("aten::mm", "backward", [[tokens, vocabulary], [vocabulary, width]]),
        ("aten::mm", "backward", [[vocabulary, tokens], [tokens, width]]),
        ("aten::_fused_sgd_", "optimizer", [[[vocabulary, width], [vocabulary]]] * 3),
    ]
    rows = [_compute(*call) for call in calls]
    name, kind = ("c10d::alltoall_base_", "all_to_all") if sends else ("c10d::allreduce_", "all_reduce")
    shape: list[object] = [[tokens, width]] if sends else [[[vocabulary * width + vocabulary]]]
    size = 4.0 * (tokens * width if sends else vocabulary * width + vocabulary)
    message = {"op_name": name, "collective": kind, "message_bytes": size, "phase": "backward"}
    comm = {**message, "node_type": NodeType.COMM, "device": 0, "stream": 0, "latency_us": 0.0}
    rows += [
        {"node_type": NodeType.HOST, "thread": 0, "op_name": name, "segment": Segment.T5, "family": "collective",
         "input_dims": _text(shape), "latency_us": 1.0, "phase": "backward"},
        {**comm, "segment": Segment.ARRIVE},
        {**comm, "segment": Segment.EXIT},
        {**message, "rank": -1, "node_type": NodeType.COLLECTIVE, "latency_us": 9.0},
    ]  # fmt: skip
    edges = [(n, n + 1, Relation.FOLLOWS) for n in range(SEND)]
    edges += [
        (SEND, ARRIVE, Relation.LAUNCHES),
        (ARRIVE, TRANSFER, Relation.JOINS),
        (TRANSFER, EXIT, Relation.RELEASES),
    ]
    return make_graph(rows, edges, steps=(StepLabel(0, "ProfilerStep#0", None, 0.0, (0.0,), (0.0,)),))


def _compute(name: str, phase: str, dims: list[object]) -> dict[str, object]:
    """A node with the cost that a trace with dtypes would give it."""
    text = _text(dims)
    kinds = [
        "long int" if name == "aten::embedding" and n == 1 else "float" if shape else "" for n, shape in enumerate(dims)
    ]
    cost = op_cost(name, text, json.dumps(kinds), None)
    return {"node_type": NodeType.COMPUTE, "thread": 0, "device": 0, "op_name": name, "phase": phase,
            "input_dims": text, "family": str(cost.family), "dtype": "float32", "flops": cost.flops,
            "bytes": cost.bytes, "latency_us": 5.0}  # fmt: skip


def _text(dims: object) -> str:
    return json.dumps(dims, separators=(",", ":"))
