"""When a collective is waited for: where it was issued, or later.

asynchronous   |issue|T1| more work ... |T1 ·waits·| next        the transfer runs next to the work
blocking       |issue|T1 ·waits·| more work ... |T1| next
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import InputError, NodeType, Relation, Segment
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, lane_keys
from gnnperf.schedule import align_runs
from gnnperf.whatif.edit import Edited
from gnnperf.whatif.reference_run import step_ids

CONTENTION = "how much faster work runs that no transfer runs beside any more, and how much slower work that one does"


@dataclass(frozen=True)
class Block:
    """Collectives are waited for where they are issued: in the gap after the issuing op.

    Attributes:
        collective: which kind (all_reduce, all_to_all, ...); None all.
        phase: issued in forward, backward or optimizer; None any.
    """

    collective: str | None = None
    phase: str | None = None

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Move the waits.

        Raises:
            InputError: the graph has no such collective, or nothing knows who issued it.
        """
        leaves = exits(graph, self.collective, self.phase)
        issued_by = issuers(graph, leaves)
        waits_at = _gap_after(graph, issued_by)
        known = waits_at >= 0
        unknown: tuple[str, ...] = (CONTENTION,)
        if not known.all():
            unknown += (f"who issued {int((~known).sum())} of {len(known)} parts: they stay as they are",)
        return waiting(graph, leaves[known], waits_at[known], unknown)


@dataclass(frozen=True)
class WaitAs:
    """Collectives are waited for where another recording waits for them: the reverse of `Block`, given the original.

    Attributes:
        other: a recording of the program whose waits are taken; only which op waits is read, no time.
        collective, phase: as in `Block`.
    """

    other: ExecutionGraph
    collective: str | None = None
    phase: str | None = None

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Move the waits.

        Raises:
            InputError: the graph has no such collective, or one of the graphs has no whole step.
        """
        leaves = exits(graph, self.collective, self.phase)
        waits_at = self._counterparts(graph)[leaves]
        known = waits_at >= 0
        unknown: tuple[str, ...] = (CONTENTION,)
        if not known.all():
            unknown += (f"where the other program waits for {int((~known).sum())} of {len(known)} parts: "
                        "they stay as they are",)  # fmt: skip
        return waiting(graph, leaves[known], waits_at[known], unknown)

    def _counterparts(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] for each exit the host node that waits for it in the other recording's place; -1 none."""
        if not graph.steps or not self.other.steps:
            raise InputError("has no whole step", where=f"graph {self.other.name!r}", remedy="record whole steps")
        result = np.full(graph.num_nodes, -1, dtype=np.int64)
        for turn, label in enumerate(graph.steps):
            mine = graph.step(label.step)
            other = self.other.step(self.other.steps[turn % len(self.other.steps)].step)
            here, matched = step_ids(graph, label.step), align_runs(mine, other)
            back = np.full(other.num_nodes, -1, dtype=np.int64)
            back[matched[matched >= 0]] = np.flatnonzero(matched >= 0)
            waiter = np.full(other.num_nodes + 1, -1, dtype=np.int64)  # the last row answers for "unmatched"
            edge = host_waits(other)
            waiter[other.edges["src"].to_numpy()[edge]] = back[other.edges["dst"].to_numpy()[edge]]
            at = waiter[matched]
            result[here[at >= 0]] = here[at[at >= 0]]
        return result


def exits(graph: ExecutionGraph, collective: str | None, phase: str | None) -> np.ndarray:
    """[n] exits of the ranks' parts in the selected collectives.

    Raises:
        InputError: there are none.
    """
    nodes = graph.nodes
    part = (nodes["node_type"] == NodeType.COMM) & (nodes["segment"] == Segment.EXIT) & nodes["step"].ge(0)
    chosen = part.copy()
    if collective is not None:
        chosen &= nodes["collective"] == collective
    if phase is not None:
        chosen &= nodes["phase"] == phase
    if not chosen.any():
        kinds = sorted({str(kind) for kind in nodes.loc[part, "collective"].dropna()})
        raise InputError(f"no {collective or 'collective'}{f' in {phase}' if phase else ''}",
                         where=f"graph {graph.name!r}", allowed=", ".join(kinds) or "no collective at all")  # fmt: skip
    return np.flatnonzero(chosen.to_numpy())


def issuers(graph: ExecutionGraph, leaves: np.ndarray) -> np.ndarray:
    """[n] host node that issued each part; -1 unknown. A part's arrive node is right before its exit."""
    launches = (graph.edges["relation"] == Relation.LAUNCHES).to_numpy()
    issuer = np.full(graph.num_nodes, -1, dtype=np.int64)
    issuer[graph.edges["dst"].to_numpy()[launches]] = graph.edges["src"].to_numpy()[launches]
    return issuer[leaves - 1]


def _gap_after(graph: ExecutionGraph, node: np.ndarray) -> np.ndarray:
    """[n] the next gap of each node's thread; -1 none."""
    lane = lane_keys(graph.nodes)
    gaps = np.flatnonzero((graph.nodes["segment"] == Segment.T1).to_numpy())
    result = np.full(len(node), -1, dtype=np.int64)
    for number in np.unique(lane[node[node >= 0]]):
        mine, candidates = np.flatnonzero((node >= 0) & (lane[node] == number)), gaps[lane[gaps] == number]
        slot = np.searchsorted(candidates, node[mine], side="right")
        result[mine[slot < len(candidates)]] = candidates[slot[slot < len(candidates)]]
    return result


def host_waits(graph: ExecutionGraph) -> np.ndarray:
    """[n] edges on which a host thread waits for an exit."""
    src, dst = graph.edges["src"].to_numpy(), graph.edges["dst"].to_numpy()
    waits = (graph.edges["relation"] == Relation.WAITS).to_numpy()
    exit_ = (graph.nodes["segment"] == Segment.EXIT).to_numpy()
    return np.flatnonzero(waits & exit_[src] & (graph.nodes["thread"].to_numpy()[dst] >= 0))


def waiting(graph: ExecutionGraph, leaves: np.ndarray, waits_at: np.ndarray, unknown: tuple[str, ...]) -> Edited:
    """The graph in which these parts are waited for there, and nowhere else."""
    moved = np.zeros(graph.num_nodes, dtype=bool)
    moved[leaves] = True
    edge = host_waits(graph)
    gone = edge[moved[graph.edges["src"].to_numpy()[edge]]]
    added = EdgeList()
    added.add(leaves, waits_at, Relation.WAITS)
    retained = graph.edges.drop(index=gone)
    edges = concat_tables([part for part in (retained, added.table()) if len(part)])
    touched = moved.copy()
    touched[waits_at] = True
    return Edited(replace(graph, edges=edges), touched, np.arange(graph.num_nodes), unknown)
