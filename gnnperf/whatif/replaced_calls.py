"""Calls of a graph become several calls each: the nodes of the old one are copied, and told to be the new ones.

before   [T1|embedding_bag]-[T1|stack]
after    [T1|remainder]-[T1|bmm]-[T1|bmm]-[T1|index_add]-[T1|stack]      each with the host time of the old one
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Segment
from gnnperf.generate import Argument, is_list, text
from gnnperf.graph import ExecutionGraph, op_cost
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.recost import PROFILER_NAME
from gnnperf.whatif.surgery import insert_copies


@dataclass(frozen=True)
class NewCall:
    """One call.

    Attributes:
        name: of the op.
        arguments: its shapes.
        flops, bytes: where no formula tells them; NaN unknown.
        dtype: of its tensors.
    """

    name: str
    arguments: tuple[Argument, ...]
    flops: float = float("nan")
    bytes: float = float("nan")
    dtype: str = "float32"

    def cost(self) -> tuple[str, float, float]:
        """(family, FLOPs, bytes): by formula, else as given."""
        own = PROFILER_NAME[self.dtype]
        kinds = [own if argument and not is_list(argument) else "" for argument in self.arguments]
        found = op_cost(self.name, text(self.arguments), json.dumps(kinds), None)
        family = str(found.family) if found.family != OpFamily.UNKNOWN else str(OpFamily.INDEXING)
        flops = self.flops if np.isnan(found.flops) else found.flops
        return family, flops, self.bytes if np.isnan(found.bytes) else found.bytes


def replace_calls(graph: ExecutionGraph, unit: np.ndarray, calls: Mapping[int, Sequence[NewCall]]) -> Edited:
    """The graph with other calls in place of some.

    Args:
        graph: a whole window or one step.
        unit: [num_nodes] number of the call of each node; -1 none.
        calls: number of a call -> what it becomes, one or more in order of execution.
    """
    came_from, touched = np.arange(graph.num_nodes), np.zeros(graph.num_nodes, dtype=bool)
    for count in sorted({len(new) for new in calls.values()}):
        chosen = [number for number, new in calls.items() if len(new) == count]
        own = np.where(np.isin(unit, chosen), unit, -1)
        graph, came, _ = insert_copies(graph, own, count - 1)
        place = pd.Series(came).groupby(came).cumcount().to_numpy()  # [num_nodes] copies first, the original last
        graph = replace(graph, nodes=_told(graph.nodes, own[came], place, calls))
        touched = touched[came] | (own[came] >= 0)
        unit, came_from = unit[came], came_from[came]
    return Edited(graph, touched, came_from)


def _told(
    nodes: pd.DataFrame, unit: np.ndarray, place: np.ndarray, calls: Mapping[int, Sequence[NewCall]]
) -> pd.DataFrame:
    """The table with names, shapes and costs of the new calls; latencies of their device work unknown."""
    texts = ("op_name", "input_dims", "family", "dtype", "event_name")
    column = {name: nodes[name].astype(object).to_numpy(copy=True) for name in texts}
    cost = {name: nodes[name].to_numpy(copy=True) for name in ("flops", "bytes", "latency_us")}
    inside = np.flatnonzero((unit >= 0) & (nodes["segment"] != Segment.T1).to_numpy())
    works = (nodes["node_type"] != NodeType.HOST).to_numpy()
    siblings = nodes["num_siblings"].to_numpy()
    for node in inside.tolist():
        call = calls[int(unit[node])][int(place[node])]
        family, flops, moved = call.cost()
        column["op_name"][node], column["input_dims"][node] = call.name, text(call.arguments)
        column["family"][node], column["dtype"][node] = family, call.dtype
        if works[node]:
            column["event_name"][node], cost["latency_us"][node] = None, np.nan
            cost["flops"][node], cost["bytes"][node] = flops / siblings[node], moved / siblings[node]
    return nodes.assign(**{name: pd.Categorical(values) for name, values in column.items()}, **cost)
