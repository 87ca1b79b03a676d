"""One embedding table on one rank: looked up, its gradient, its update."""

from __future__ import annotations

import json

from toys import make_graph

from gnnperf.core.schema import NodeType, Relation, Segment
from gnnperf.graph.cost import op_cost
from gnnperf.graph.execution_graph import ExecutionGraph

LOOKUP, STACK, GRADIENT, UPDATE, FUSED = (1, 3, 5, 7, 9)  # nodes; before each its gap


def lookups(rows: int, columns: int = 8, *, dense: bool = False) -> ExecutionGraph:
    """40 indices in 10 bags; with `dense` the gradient is that of the whole table and the optimizer takes lists."""
    table = [rows, columns]
    sparse = 2.0 * 40 * columns
    calls: list[tuple[str, str, list[object]]] = [
        ("aten::embedding_bag", "forward", [table, [40], [10], [], [], [], [], [], []]),
        ("aten::stack", "forward", [[[10, columns]], []]),
        ("aten::embedding_backward", "backward", [[40, columns], [40], [], [], [], []]) if dense else
        ("aten::_embedding_bag_backward", "backward", [[10, columns], [40], [10], [0], [10], [10], *[[]] * 6]),
        ("aten::add_", "optimizer", [table, table, []]),
        ("aten::_fused_sgd_", "optimizer", [[table, [7]], [table, [7]], []]),
    ]  # fmt: skip
    rows_: list[dict[str, object]] = []
    for name, phase, dims in calls:
        rows_ += [{"node_type": NodeType.HOST, "thread": 0, "segment": Segment.T1, "latency_us": 1.0, "phase": phase},
                  _compute(name, phase, dims)]  # fmt: skip
    rows_[UPDATE].update(family="embedding", flops=sparse, bytes=6.0 * sparse)
    if dense:
        rows_[GRADIENT].update(flops=40.0 * columns, bytes=4.0 * (3 * 40 * columns + rows * columns) + 8 * 40)
    return make_graph(rows_, [(n, n + 1, Relation.FOLLOWS) for n in range(len(rows_) - 1)])


def _compute(name: str, phase: str, dims: list[object]) -> dict[str, object]:
    text = json.dumps(dims, separators=(",", ":"))
    kinds = ["long int" if "embedding_bag" in name and n in (1, 2) else "float" if shape else ""
             for n, shape in enumerate(dims)]  # fmt: skip
    cost = op_cost(name, text, json.dumps(kinds), None)
    return {"node_type": NodeType.COMPUTE, "thread": 0, "device": 0, "op_name": name, "phase": phase,
            "input_dims": text, "family": str(cost.family), "dtype": "float32", "flops": cost.flops,
            "bytes": cost.bytes, "latency_us": 5.0}  # fmt: skip
