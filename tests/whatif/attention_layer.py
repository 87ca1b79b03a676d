"""One layer of unfused attention on one rank as a graph, for any length: what the edit of the sequence is held against.

ids [b,s] -> embedding -> + positions [s,w] -> linear [bs,w] -> products [bh,s,d] -> softmax [b,h,s,s] -> product
     gradient of positions: sum over b; gradients of all in one bucket; optimizer
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from toys import make_graph

from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.cost import op_cost
from gnnperf.graph.execution_graph import ExecutionGraph, StepLabel

(EMBEDDING, ADD, NORM, QKV, SCORES, SOFTMAX, CONTEXT, FUSED, OUT, GRADIENT_W, SUM, UPDATE, SEND, ARRIVE, EXIT,
 TRANSFER) = range(16)  # fmt: skip


@dataclass(frozen=True)
class Size:
    """Samples b, length s, heads h of d columns, v words."""

    b: int
    s: int
    h: int
    d: int
    v: int

    @property
    def width(self) -> int:
        return self.h * self.d

    @property
    def parameters(self) -> list[list[int]]:
        return [[self.v, self.width], [self.s, self.width], [self.v]]


def attention_layer(size: Size) -> ExecutionGraph:
    """The graph; causal attention in one piece stands next to the one in parts."""
    b, s, h, d, v, w = size.b, size.s, size.h, size.d, size.v, size.width
    heads = [b, h, s, d]
    bucket = sum(_elements(shape) for shape in size.parameters)
    calls: list[tuple[str, str, list[object]]] = [
        ("aten::embedding", "forward", [[v, w], [b, s], [], [], []]),
        ("aten::add", "forward", [[b, s, w], [s, w], []]),
        ("aten::layer_norm", "forward", [[b * s, w], [], [w], [w], [], []]),
        ("aten::linear", "forward", [[b * s, w], [v, w], [v]]),
        ("aten::bmm", "forward", [[b * h, s, d], [b * h, d, s]]),
        ("aten::softmax", "forward", [[b, h, s, s], [], []]),
        ("aten::bmm", "forward", [[b * h, s, s], [b * h, s, d]]),
        ("aten::scaled_dot_product_attention", "forward", [heads, heads, heads, [], [], [], [], []]),
        ("aten::add_", "forward", [[b * s, w], [b * s, w], []]),
        ("aten::mm", "backward", [[v, b * s], [b * s, w]]),
        ("aten::sum", "backward", [[b, s, w], [], [], []]),
        ("aten::_fused_sgd_", "optimizer", [size.parameters] * 3),
    ]
    rows = [_compute(*call, causal=s) for call in calls]
    message = {"op_name": "c10d::allreduce_", "collective": "all_reduce", "message_bytes": 4.0 * bucket,
               "phase": "backward"}  # fmt: skip
    comm = {**message, "node_type": NodeType.COMM, "device": 0, "stream": 0, "latency_us": 0.0}
    rows += [
        {"node_type": NodeType.HOST, "thread": 0, "op_name": "c10d::allreduce_", "segment": Segment.T5,
         "family": "collective", "input_dims": _text([[[bucket]]]), "latency_us": 1.0, "phase": "backward"},
        {**comm, "segment": Segment.ARRIVE},
        {**comm, "segment": Segment.EXIT},
        {**message, "rank": -1, "node_type": NodeType.COLLECTIVE, "latency_us": 9.0},
    ]  # fmt: skip
    edges = [(n, n + 1, Relation.FOLLOWS) for n in range(SEND)]
    edges += [(SEND, ARRIVE, Relation.LAUNCHES), (ARRIVE, TRANSFER, Relation.JOINS),
              (TRANSFER, EXIT, Relation.RELEASES)]  # fmt: skip
    return make_graph(rows, edges, steps=(StepLabel(0, "ProfilerStep#0", None, 0.0, (0.0,), (0.0,)),))


def _elements(shape: list[int]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def _compute(name: str, phase: str, dims: list[object], causal: int) -> dict[str, object]:
    """A node with the cost that a trace with dtypes and values would give it; attention in one piece is causal."""
    kinds = ["long int" if name == "aten::embedding" and n == 1 else "float" if shape else ""
             for n, shape in enumerate(dims)]  # fmt: skip
    cost = op_cost(name, _text(dims), json.dumps(kinds), None)
    share = (causal + 1) / (2 * causal) if "attention" in name else 1.0
    return {"node_type": NodeType.COMPUTE, "thread": 0, "device": 0, "op_name": name, "phase": phase,
            "input_dims": _text(dims), "family": str(cost.family), "dtype": "float32", "flops": share * cost.flops,
            "bytes": cost.bytes, "latency_us": 5.0}  # fmt: skip


def _text(dims: object) -> str:
    return json.dumps(dims, separators=(",", ":"))
