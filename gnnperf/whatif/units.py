"""Op calls as units of nodes: the gap before an op, its host segments, and what they launch.

host     [T1|T2|T4|T5|T4|T3]      one unit; on a CPU device [T1|compute]
device      [gemm]  [bias]
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.core import TIMED_RELATIONS, NodeType, OpFamily, Relation, Segment
from gnnperf.graph import ExecutionGraph, consecutive, lane_keys, take
from gnnperf.whatif.edit import ON_DEVICE, ends, is_type


def host_units(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] a number per gap and what follows it up to the next gap; -1 off the host.

    Of two gaps in a row (a thread forked in between) the second belongs to the op.
    """
    lane, thread = lane_keys(graph.nodes), graph.nodes["thread"].to_numpy()
    on_host = np.flatnonzero(thread >= 0)
    order = on_host[np.argsort(lane[on_host], kind="stable")]
    gap = (graph.nodes["segment"] == Segment.T1).to_numpy()[order]
    opens = gap | np.r_[True, lane[order[1:]] != lane[order[:-1]]][: len(order)]
    result = np.full(graph.num_nodes, -1, dtype=np.int64)
    result[order] = np.cumsum(opens) - 1
    return result


def with_launched(graph: ExecutionGraph, unit: np.ndarray) -> np.ndarray:
    """The same units with the device work that their host nodes launch."""
    src, dst = ends(graph, Relation.LAUNCHES)
    result = unit.copy()
    result[dst[unit[src] >= 0]] = unit[src[unit[src] >= 0]]
    return result


def call_table(graph: ExecutionGraph) -> tuple[pd.DataFrame, np.ndarray]:
    """(a row per op call in order of execution, [num_nodes] number of the call of each node; -1 none).

    Columns: unit, lane, rank, step, phase, op_name, input_dims ("" unknown), num_works (nodes on the device), is_free:
    nothing of another thread, stream or rank waits for it or is waited for by it, and it is no collective.
    """
    nodes = graph.nodes
    unit = with_launched(graph, host_units(graph))
    first = (unit >= 0) & (nodes["thread"] >= 0).to_numpy() & (nodes["segment"] != Segment.T1).to_numpy()
    own = nodes[first].assign(unit=unit[first], lane=lane_keys(nodes)[first]).drop_duplicates("unit")
    table = own[["unit", "lane", "rank", "step", "phase"]].copy()
    for column in ("op_name", "input_dims"):
        table[column] = own[column].astype(object).where(own[column].notna(), "")
    works = is_type(graph, *ON_DEVICE) & (unit >= 0)
    src, dst = ends(graph, Relation.WAITS)
    between = unit[src] != unit[dst]
    tied = is_type(graph, NodeType.COMM) | (nodes["family"] == OpFamily.COLLECTIVE).to_numpy()
    tied[src[between]] = tied[dst[between]] = True
    table["num_works"] = np.bincount(unit[works], minlength=int(unit.max(initial=-1)) + 1)[table["unit"].to_numpy()]
    is_tied = table["unit"].isin(np.unique(unit[tied])).to_numpy()
    table["is_free"] = ~is_tied & (table["op_name"] != "") & (table["step"] >= 0)
    return table.sort_values("unit").reset_index(drop=True), unit


# Take nodes out of a graph. Within a lane, node ids stay in order of execution.
#
# before   [T1|op A]-[T1|op B]-[T1|op C]                one lane
# remove   [T1|op A]-[T1|op C]


def remove(graph: ExecutionGraph, gone: np.ndarray) -> tuple[ExecutionGraph, np.ndarray]:
    """Take nodes out. What they waited for, the next node of their lane waits for; what waited for them, waits no more.

    `gone` [num_nodes] bool. Returns the graph, [num_nodes] the node that each one was.
    """
    heir = next_retained(lane_keys(graph.nodes), gone)  # [num_nodes]
    edges = graph.edges
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    timed = edges["relation"].isin([str(r) for r in TIMED_RELATIONS]).to_numpy()
    inherited = timed & ~gone[src] & gone[dst] & (heir[dst] >= 0)
    moved = edges.assign(dst=np.where(inherited, heir[dst], dst), lag_us=edges["lag_us"].mask(inherited))
    nodes, left = take(graph.nodes, moved, ~gone)
    cross_step = graph.cross_step
    if cross_step is not None:  # waits for the step before, of the nodes that are left, by their new numbers
        both = np.stack([cross_step[0], heir[cross_step[1]]])
        cross_step = (np.cumsum(~gone) - 1)[both[:, ~gone[both[0]] & (both[1] >= 0)]]
    return replace(graph, nodes=nodes, edges=left, cross_step=cross_step), np.flatnonzero(~gone)


def next_retained(lane: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """[num_nodes] itself if kept, else the next kept node of its lane; -1 none."""
    heir = np.where(gone, -1, np.arange(len(lane)))
    before, after = consecutive(lane)
    for node, following in zip(before[::-1].tolist(), after[::-1].tolist(), strict=True):
        if gone[node]:
            heir[node] = heir[following]
    return heir
