"""Op calls as units of nodes: the gap before an op, its host segments, and what they launch.

host     [T1|T2|T4|T5|T4|T3]      one unit; on a CPU device [T1|compute]
device      [gemm]  [bias]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, OpFamily, Relation, Segment
from gnnperf.graph import ExecutionGraph, lane_keys
from gnnperf.whatif.edit import ON_DEVICE, chosen, ends, is_type, refusal


@dataclass(frozen=True)
class OpSelector:
    """Which calls of an op."""

    op: str  # name of the outermost op, e.g. aten::linear.
    input_dims: str | None = None  # its input shapes as the graph has them (JSON); None any
    phase: str | None = None  # forward, backward, optimizer; None any
    ranks: Sequence[int] | None = None  # None all
    # which of the calls that all else selects, counted from 0 on each rank in each step; None all
    ordinals: Sequence[int] | None = None

    def names(self, nodes: pd.DataFrame) -> np.ndarray:
        """[num_nodes] bool: nodes within (not between) such calls; `ordinals` aside, which take a whole graph."""
        fits = chosen(nodes, op_name=self.op, input_dims=self.input_dims, phase=self.phase)
        fits &= (nodes["segment"] != Segment.T1).to_numpy()
        return fits if self.ranks is None else fits & nodes["rank"].isin(list(self.ranks)).to_numpy()

    def __str__(self) -> str:
        lists = (("ranks", self.ranks), ("ordinals", self.ordinals))
        limits = [f"{name} {', '.join(map(str, numbers))}" for name, numbers in lists if numbers is not None]
        return " ".join([self.op, *(one for one in (self.input_dims, self.phase) if one is not None), *limits])


def units(graph: ExecutionGraph, selector: OpSelector) -> np.ndarray:
    """[num_nodes] number of the selected op call that each node belongs to, in order of execution; -1 none.

    Raises InputError: no such call, or it is a collective (whose peers would have to take part).
    """
    host = host_units(graph)
    selected = selector.names(graph.nodes) & (host >= 0)
    if selector.ordinals is not None:
        selected &= np.isin(_ordinal(graph, host, selected), list(selector.ordinals))
    if not selected.any():
        known = sorted({str(n) for n in graph.nodes.loc[graph.nodes["node_type"] == NodeType.COMPUTE, "op_name"]})
        raise refusal(graph, f"no call of {selector}", f"an op of the graph, e.g. {', '.join(known[:12])}")
    result = with_launched(graph, np.where(np.isin(host, np.unique(host[selected])), host, -1))
    if (is_type(graph, NodeType.COMM) & (result >= 0)).any():
        raise InputError(f"{selector} is a collective", where="an op to repeat", allowed="an op of one rank")
    return result


def _ordinal(graph: ExecutionGraph, unit: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """[num_nodes] number of the selected call among those of its rank and step, in order of execution; -1 none."""
    calls = graph.nodes.loc[selected, ["rank", "step"]].assign(unit=unit[selected])
    calls = calls.drop_duplicates("unit").sort_values("unit")
    ordinal_of = pd.Series(calls.groupby(["rank", "step"]).cumcount().to_numpy(), index=calls["unit"])
    result = np.full(graph.num_nodes, -1, dtype=np.int64)
    result[selected] = ordinal_of.loc[unit[selected]].to_numpy()
    return result


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
