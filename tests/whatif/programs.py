"""Small programs on one rank as graphs, for any size: the edit of a size is compared with the graph of that size.

layer            ids [b,s] -> embedding -> linear [bs,w] x [v,w] -> loss -> gradients -> all_reduce (flat) -> optimizer
                                     `-> all_to_all [bs,w]
attention_layer  ids [b,s] -> embedding -> + positions [s,w] -> linear [bs,w] -> products [bh,s,d] -> softmax [b,h,s,s]
                      -> product; gradient of positions: sum over b; gradients of all in one bucket; optimizer
lookups          one embedding table: looked up, its gradient, its update
"""

import json
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import pandas as pd
from toys import make_graph

from gnnperf.core import NodeType, Relation, Segment
from gnnperf.graph import EdgeList, ExecutionGraph, StepLabel, concat_tables, load_graph, op_cost

Call = tuple[str, str, list[object]]  # op, phase, shapes
EMBEDDING, LINEAR, LOSS, GRADIENT_IN, GRADIENT_W, UPDATE, SEND, ARRIVE, EXIT, TRANSFER = range(10)
INTEGERS = {"aten::embedding": (1,), "aten::embedding_bag": (1, 2), "aten::_embedding_bag_backward": (1, 2)}


def layer(batch: int, length: int, width: int, vocabulary: int, *, sends: bool = True) -> ExecutionGraph:
    """One layer of a language model. With `sends` the message is of activations, else the flat gradient."""
    tokens = batch * length
    calls: list[Call] = [
        ("aten::embedding", "forward", [[vocabulary, width], [batch, length], [], [], []]),
        ("aten::linear", "forward", [[tokens, width], [vocabulary, width], [vocabulary]]),
        ("aten::_log_softmax", "forward", [[tokens, vocabulary], [], []]),
        ("aten::mm", "backward", [[tokens, vocabulary], [vocabulary, width]]),
        ("aten::mm", "backward", [[vocabulary, tokens], [tokens, width]]),
        ("aten::_fused_sgd_", "optimizer", [[[vocabulary, width], [vocabulary]]] * 3),
    ]
    if sends:
        return _sending(calls, "c10d::alltoall_base_", "all_to_all", [tokens, width])
    return _sending(calls, "c10d::allreduce_", "all_reduce", [[vocabulary * width + vocabulary]])


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
    """One layer of unfused attention; causal attention in one piece stands next to the one in parts."""
    b, s, h, d, v, w = size.b, size.s, size.h, size.d, size.v, size.width
    calls: list[Call] = [
        ("aten::embedding", "forward", [[v, w], [b, s], [], [], []]),
        ("aten::add", "forward", [[b, s, w], [s, w], []]),
        ("aten::layer_norm", "forward", [[b * s, w], [], [w], [w], [], []]),
        ("aten::linear", "forward", [[b * s, w], [v, w], [v]]),
        ("aten::bmm", "forward", [[b * h, s, d], [b * h, d, s]]),
        ("aten::softmax", "forward", [[b, h, s, s], [], []]),
        ("aten::bmm", "forward", [[b * h, s, s], [b * h, s, d]]),
        ("aten::scaled_dot_product_attention", "forward", [*[[b, h, s, d]] * 3, *[[]] * 5]),
        ("aten::add_", "forward", [[b * s, w], [b * s, w], []]),
        ("aten::mm", "backward", [[v, b * s], [b * s, w]]),
        ("aten::sum", "backward", [[b, s, w], [], [], []]),
        ("aten::_fused_sgd_", "optimizer", [size.parameters] * 3),
    ]
    return _sending(calls, "c10d::allreduce_", "all_reduce", [[sum(map(prod, size.parameters))]], causal=s)


def _sending(
    calls: list[Call], name: str, kind: str, sent: list, causal: int | None = None,  # type: ignore[type-arg]
    phase: str = "backward", *, gaps: bool = False,
) -> ExecutionGraph:  # fmt: skip
    """The calls in a row, then a collective of float32 values; `gaps`: one before each call."""
    gap = {"node_type": NodeType.HOST, "thread": 0, "segment": Segment.T1, "latency_us": 1.0}
    before: list[dict[str, object]] = [gap] if gaps else []
    rows = [row for call in calls for row in (*before, compute(*call, causal=causal))] + before
    values = prod(sent[0] if isinstance(sent[0], list) else sent)
    message = {"op_name": name, "collective": kind, "message_bytes": 4.0 * values, "phase": phase}
    comm = {**message, "node_type": NodeType.COMM, "device": 0, "stream": 0, "latency_us": 0.0}
    if gaps:
        comm["dtype"] = "float32"
    send = len(rows)
    rows += [
        {"node_type": NodeType.HOST, "thread": 0, "op_name": name, "segment": Segment.T5, "family": "collective",
         "input_dims": text([sent]), "latency_us": 1.0, "phase": phase},
        {**comm, "segment": Segment.ARRIVE},
        {**comm, "segment": Segment.EXIT},
        {**message, "rank": -1, "node_type": NodeType.COLLECTIVE, "latency_us": 9.0},
    ]  # fmt: skip
    edges = [(n, n + 1, Relation.FOLLOWS) for n in range(send)]
    edges += [(send, send + 1, Relation.LAUNCHES), (send + 1, send + 3, Relation.JOINS),
              (send + 3, send + 2, Relation.RELEASES)]  # fmt: skip
    return make_graph(rows, edges, steps=(StepLabel(0, "ProfilerStep#0", None, 0.0, (0.0,), (0.0,)),))


def sequence_first(samples: int, *, followed: bool = True) -> ExecutionGraph:
    """Attention of 2 heads of 5 columns over 7 places, as [7, samples, 10]; activations are summed up over ranks.

    The last two calls before the optimizer have a size of 3, which is no batch: nothing ties them to data.
    """
    b, tokens = samples, 7 * samples
    calls: list[Call] = [
        ("aten::mm", "forward", [[tokens, 10], [10, 10]]),
        ("aten::add", "forward", [[7, b, 10], [10], []]),
        ("aten::copy_", "forward", [[7, b, 2, 5], [7, b, 2, 5], []]),
        ("aten::bmm", "forward", [[2 * b, 7, 5], [2 * b, 5, 7]]),
        ("aten::_softmax", "forward", [[b, 2, 7, 7], [], []]),
        ("aten::bmm", "forward", [[2 * b, 7, 7], [2 * b, 7, 5]]),
        ("aten::fill_", "forward", [[b * 2 * 7 * 7], []]),
        ("aten::mul", "forward", [[3, 10], []]),
        ("aten::add", "forward", [[7, 3, 10], [1], []]),
        ("aten::_fused_sgd_", "optimizer", [[[10, 10], [10]]] * 3),
    ]
    graph = _sending(calls, "c10d::allreduce_", "all_reduce", [[tokens * 10]], phase="forward", gaps=True)
    feeds, tied = EdgeList(), 1 + 2 * np.arange(6 if followed else 0)
    feeds.add(tied, tied + 2, Relation.FEEDS)
    return replace(graph, edges=concat_tables([part for part in (graph.edges, feeds.table()) if len(part)]))


LOOKUP, STACK, DENSE, TABLE_UPDATE, FUSED = 1, 3, 5, 7, 9  # nodes of `lookups`; before each its gap


def lookups(rows: int, columns: int = 8, *, dense: bool = False) -> ExecutionGraph:
    """40 indices in 10 bags; with `dense` the gradient is that of the whole table and the optimizer takes lists."""
    table = [rows, columns]
    sparse = 2.0 * 40 * columns
    calls: list[Call] = [
        ("aten::embedding_bag", "forward", [table, [40], [10], [], [], [], [], [], []]),
        ("aten::stack", "forward", [[[10, columns]], []]),
        ("aten::embedding_backward", "backward", [[40, columns], [40], [], [], [], []]) if dense else
        ("aten::_embedding_bag_backward", "backward", [[10, columns], [40], [10], [0], [10], [10], *[[]] * 6]),
        ("aten::add_", "optimizer", [table, table, []]),
        ("aten::_fused_sgd_", "optimizer", [[table, [7]], [table, [7]], []]),
    ]  # fmt: skip
    result: list[dict[str, object]] = []
    for name, phase, dims in calls:
        gap = {"node_type": NodeType.HOST, "thread": 0, "segment": Segment.T1, "latency_us": 1.0, "phase": phase}
        result += [gap, compute(name, phase, dims)]
    result[TABLE_UPDATE].update(family="embedding", flops=sparse, bytes=6.0 * sparse)
    if dense:
        result[DENSE].update(flops=40.0 * columns, bytes=4.0 * (3 * 40 * columns + rows * columns) + 8 * 40)
    return make_graph(result, [(n, n + 1, Relation.FOLLOWS) for n in range(len(result) - 1)])


def compute(name: str, phase: str, dims: list[object], *, causal: int | None = None) -> dict[str, object]:
    """A node with the cost that a trace with dtypes and values would give it; attention in one piece is causal."""
    integer = INTEGERS.get(name, ())
    kinds = ["long int" if n in integer else "float" if shape else "" for n, shape in enumerate(dims)]
    cost = op_cost(name, text(dims), json.dumps(kinds), None)
    share = (causal + 1) / (2 * causal) if causal and "attention" in name else 1.0
    return {"node_type": NodeType.COMPUTE, "thread": 0, "device": 0, "op_name": name, "phase": phase,
            "input_dims": text(dims), "family": str(cost.family), "dtype": "float32", "flops": share * cost.flops,
            "bytes": cost.bytes, "latency_us": 5.0}  # fmt: skip


def text(dims: object) -> str:
    return json.dumps(dims, separators=(",", ":"))


def recorded(run: str) -> ExecutionGraph:
    """A step of a run of datasets/cpu-gloo."""
    return load_graph(Path("datasets/cpu-gloo") / run).step(1).for_predictors()


def transfers(graph: ExecutionGraph) -> pd.DataFrame:
    return graph.nodes[(graph.nodes["node_type"] == "collective").to_numpy()]
