"""Op calls of a graph as rows, each with the nodes before it, around it, and on the device: what is moved as one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import NodeType, OpFamily, Relation, Segment
from gnnperf.graph import ExecutionGraph, lane_keys
from gnnperf.whatif.units import host_units, with_launched


def call_table(graph: ExecutionGraph) -> tuple[pd.DataFrame, np.ndarray]:
    """(a row per op call in order of execution, [num_nodes] number of the call of each node; -1 none).

    Columns: unit, lane, rank, step, phase, op_name, input_dims ("" unknown), num_works, is_free: nothing of another
    thread, stream or rank waits for it or is waited for by it, and it is no collective.
    """
    nodes = graph.nodes
    unit = with_launched(graph, host_units(graph))
    first = (unit >= 0) & (nodes["thread"] >= 0).to_numpy() & (nodes["segment"] != Segment.T1).to_numpy()
    own = nodes[first].assign(unit=unit[first], lane=lane_keys(nodes)[first]).drop_duplicates("unit")
    table = own[["unit", "lane", "rank", "step", "phase"]].copy()
    for column in ("op_name", "input_dims"):
        table[column] = own[column].astype(object).where(own[column].notna(), "")
    works = nodes["node_type"].isin([str(NodeType.COMPUTE), str(NodeType.MEMORY)]).to_numpy() & (unit >= 0)
    num_works = np.bincount(unit[works], minlength=int(unit.max(initial=-1)) + 1)
    tied = np.unique(unit[_tied(graph, unit)])
    table["num_works"] = num_works[table["unit"].to_numpy()]
    table["is_free"] = ~table["unit"].isin(tied).to_numpy() & (table["op_name"] != "") & (table["step"] >= 0)
    return table.sort_values("unit").reset_index(drop=True), unit


def _tied(graph: ExecutionGraph, unit: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: ends of waits between calls, and nodes of calls that send."""
    nodes, edges = graph.nodes, graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    waits = (edges["relation"] == Relation.WAITS).to_numpy() & (unit[src] != unit[dst])
    result = (nodes["family"] == OpFamily.COLLECTIVE).to_numpy() | (nodes["node_type"] == NodeType.COMM).to_numpy()
    result[src[waits]] = result[dst[waits]] = True
    return result & (unit >= 0)
