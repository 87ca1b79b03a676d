"""Op calls as units of nodes: the gap before an op, its host segments, and what they launch.

host     [T1|T2|T4|T5|T4|T3]      one unit; on a CPU device [T1|compute]
device      [gemm]  [bias]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.graph import ExecutionGraph, lane_keys


@dataclass(frozen=True)
class OpSelector:
    """Which calls of an op.

    Attributes:
        op: name of the outermost op, e.g. aten::linear.
        input_dims: its input shapes as the graph has them (JSON); None any.
        phase: forward, backward, optimizer; None any.
        ranks: None all.
        ordinals: which of the calls that all else selects, counted from 0 on each rank in each step; None all.
    """

    op: str
    input_dims: str | None = None
    phase: str | None = None
    ranks: Sequence[int] | None = None
    ordinals: Sequence[int] | None = None

    def names(self, nodes: pd.DataFrame) -> np.ndarray:
        """[num_nodes] bool: nodes within (not between) such calls; `ordinals` aside, which take a whole graph."""
        fits = (nodes["op_name"] == self.op) & (nodes["segment"] != Segment.T1) & nodes["step"].ge(0)
        if self.input_dims is not None:
            fits &= nodes["input_dims"] == self.input_dims
        if self.phase is not None:
            fits &= nodes["phase"] == self.phase
        if self.ranks is not None:
            fits &= nodes["rank"].isin(list(self.ranks))
        return fits.to_numpy()

    def __str__(self) -> str:
        limits = [self.input_dims, self.phase, _listed("ranks", self.ranks), _listed("ordinals", self.ordinals)]
        return " ".join([self.op, *(str(limit) for limit in limits if limit is not None)])


def units(graph: ExecutionGraph, selector: OpSelector) -> np.ndarray:
    """[num_nodes] number of the selected op call that each node belongs to, in order of execution; -1 none.

    Raises:
        InputError: no such call, or it is a collective (whose peers would have to take part).
    """
    host = host_units(graph)
    selected = selector.names(graph.nodes) & (host >= 0)
    if selector.ordinals is not None:
        selected &= np.isin(_ordinal(graph, host, selected), list(selector.ordinals))
    if not selected.any():
        known = sorted({str(n) for n in graph.nodes.loc[graph.nodes["node_type"] == NodeType.COMPUTE, "op_name"]})
        raise InputError(f"no call of {selector}", where=f"graph {graph.name!r}",
                         allowed=f"an op of the graph, e.g. {', '.join(known[:12])}")  # fmt: skip
    result = np.where(np.isin(host, np.unique(host[selected])), host, -1)
    result = with_launched(graph, result)
    kinds = graph.nodes["node_type"].to_numpy()[result >= 0]
    if (kinds == NodeType.COMM).any():
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


def _listed(word: str, numbers: Sequence[int] | None) -> str | None:
    return None if numbers is None else f"{word} {', '.join(map(str, numbers))}"


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
    launches = (graph.edges["relation"] == Relation.LAUNCHES).to_numpy()
    src, dst = graph.edges["src"].to_numpy()[launches], graph.edges["dst"].to_numpy()[launches]
    result = unit.copy()
    result[dst[unit[src] >= 0]] = unit[src[unit[src] >= 0]]
    return result
