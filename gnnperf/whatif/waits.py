"""When a collective is waited for: where it is issued (`Block`), or where its result is needed (`WaitLater`).

later      |issue|T1| more work ... |T1 ·waits·| takes the result      the transfer runs next to the work
blocking   |issue|T1 ·waits·| more work ... |T1| takes the result
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import TIMED_RELATIONS, NodeType, Phase, Relation, Segment, require
from gnnperf.generate import Shape, parse
from gnnperf.graph import EdgeList, ExecutionGraph, concat_tables, lane_keys
from gnnperf.schedule import topological_order
from gnnperf.whatif.batch_shapes import all_shapes, op_of
from gnnperf.whatif.declared import Place, gap_at
from gnnperf.whatif.edit import ON_DEVICE, Edited, chosen, ends, is_type, refusal, rewritten
from gnnperf.whatif.units import host_units, with_launched

CONTENTION = "how much faster work runs without a transfer at the same time, and how much slower work that one does"


@dataclass(frozen=True)
class Block:
    """Collectives are waited for where they are issued: in the gap after the issuing op."""

    collective: str | None = None  # which kind (all_reduce, all_to_all, ...); None all
    phase: str | None = None  # issued in forward, backward or optimizer; None any

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Apply the edit."""
        leaves = exits(graph, self.collective, self.phase)
        waits_at = _gap_after(graph, _issuers(graph, leaves))
        known = waits_at >= 0
        unknown: tuple[str, ...] = (CONTENTION,)
        if not known.all():
            unknown += (f"who issued {int((~known).sum())} of {len(known)} parts: they stay as they are",)
        return waiting(graph, leaves[known], waits_at[known], unknown)


def exits(graph: ExecutionGraph, collective: str | None, phase: str | None) -> np.ndarray:
    """[n] exits of the ranks' parts in the selected collectives. Raises InputError: there are none."""
    nodes, part = graph.nodes, {"segment": Segment.EXIT}
    result = chosen(nodes, NodeType.COMM, **part, collective=collective, phase=phase)
    if not result.any():
        kinds = sorted({str(kind) for kind in nodes["collective"][chosen(nodes, NodeType.COMM, **part)].dropna()})
        what = f"no {collective or 'collective'}{f' in {phase}' if phase else ''}"
        raise refusal(graph, what, ", ".join(kinds) or "no collective at all")
    return np.flatnonzero(result)


def _issuers(graph: ExecutionGraph, leaves: np.ndarray) -> np.ndarray:
    """[n] host node that issued each part; -1 unknown. A part's arrive node is right before its exit."""
    src, dst = ends(graph, Relation.LAUNCHES)
    issuer = np.full(graph.num_nodes, -1, dtype=np.int64)
    issuer[dst] = src
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
    return _exit_waits(graph, (graph.nodes["thread"] >= 0).to_numpy())


def _exit_waits(graph: ExecutionGraph, waiters: np.ndarray) -> np.ndarray:
    """[n] edges on which one of `waiters` [num_nodes] bool waits for an exit."""
    waits = (graph.edges["relation"] == Relation.WAITS).to_numpy()
    exit_ = (graph.nodes["segment"] == Segment.EXIT).to_numpy()
    return np.flatnonzero(waits & exit_[graph.edges["src"].to_numpy()] & waiters[graph.edges["dst"].to_numpy()])


def waiting(graph: ExecutionGraph, leaves: np.ndarray, waits_at: np.ndarray, unknown: tuple[str, ...]) -> Edited:
    """The graph in which these parts are waited for there; a host or a stream waits for them nowhere else."""
    touched = np.zeros(graph.num_nodes, dtype=bool)
    touched[leaves] = True
    works, src = is_type(graph, *ON_DEVICE), graph.edges["src"].to_numpy()
    by_host, by_device = host_waits(graph), _exit_waits(graph, works)
    gone = [by_host[touched[src[by_host]]], by_device[np.isin(src[by_device], leaves[works[waits_at]])]]
    retained = graph.edges.drop(np.concatenate(gone))
    added = EdgeList()
    added.add(leaves, waits_at, Relation.WAITS)
    touched[waits_at] = True
    edges = concat_tables([part for part in (retained, added.table()) if len(part)])
    return rewritten(graph, touched, unknown, edges=edges)


# Who takes what a call makes: given by `feeds` edges where there are any, else by shapes.
#
# [T1|all_to_all -> [8,4]]-[T1|linear [8,5]]-[T1|view [8,4]]      no edge: the next call with an input [8,4] takes it
#
# A shape can be taken for a tensor's that it is not; the first call after it is the earliest that may need it.

ALLOCATES = ("empty_like", "zeros_like", "ones_like", "new_empty", "new_zeros", "empty_strided", "rand_like")
Takers = dict[Shape | None, np.ndarray]


def _takers(nodes: pd.DataFrame, calls: np.ndarray) -> Takers:
    """Shape -> [n] nodes among `calls` [num_nodes] bool with such an input, ascending; ops that only allocate aside."""
    known = np.flatnonzero(calls & nodes["input_dims"].notna().to_numpy())
    dims = nodes["input_dims"].astype(object).to_numpy()[known]
    names = nodes["op_name"].astype(str).to_numpy()[known]
    results: dict[Shape, list[int]] = {}
    for node, text, name in zip(known.tolist(), dims, names, strict=True):
        if op_of(name) not in ALLOCATES:
            for shape in set(all_shapes(parse(str(text)))):
                results.setdefault(shape, []).append(node)
    return {shape: np.array(places) for shape, places in results.items()}


def fed_by(graph: ExecutionGraph) -> dict[int, np.ndarray]:
    """Node -> [n] nodes that its tensors feed, ascending.

    Edges from forward to backward are left out: every trace has them, and they do not say who takes a result next.
    """
    phase = graph.nodes["phase"].astype(str).to_numpy()
    src, dst = ends(graph, Relation.FEEDS)
    given = (phase[src] != Phase.FORWARD) | (phase[dst] != Phase.BACKWARD)
    takers = pd.Series(dst[given]).groupby(src[given])
    return {int(str(node)): np.unique(group) for node, group in takers}


BY_SHAPE = ("who takes the results of {} parts: no tensor is followed (no feeds edges); the first call after each that "
            "takes a tensor of its shape is assumed to")  # fmt: skip
BY_USER = "whether results are needed earlier than at {}: the edit states it"
NO_CONSUMER = "who takes the results of {} of {} parts: they are waited for where they were"
STORED = "what memory the messages hold until they are waited for"


@dataclass(frozen=True)
class WaitLater:
    """Collectives are waited for where they are needed: the reverse of `Block`."""

    collective: str | None = None  # which kind (all_reduce, all_to_all, ...); None all
    phase: str | None = None  # issued in forward, backward or optimizer; None any
    # a place (start, backward, optimizer) where results are needed at the earliest; None: by `feeds` edges, else by
    # shapes
    until: str | None = None

    def __post_init__(self) -> None:
        require(self.until in (None, *Place), "until of an overlap", self.until, ", ".join(Place))

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Move the waits; never to an earlier place than where they are."""
        leaves = exits(graph, self.collective, self.phase)
        issued_by = _issuers(graph, leaves)
        takers, how = self._needed(graph, issued_by, leaves)
        waits_at, is_later = _later(graph, leaves, takers)
        known = (waits_at >= 0) & is_later
        later = waiting(graph, leaves[known], waits_at[known], ()).graph
        if known.any() and len(topological_order(graph.num_nodes, *ends(later, *TIMED_RELATIONS))[0]) < graph.num_nodes:
            # A later wait in the lane that waits for the part now cannot close a cycle.
            lane, now = lane_keys(graph.nodes), _waiter(graph, leaves)
            known &= (now >= 0) & (lane[now] == lane[waits_at])
        if not known.any():
            kind = self.collective or "a collective"
            taken = f"every result of {kind} is needed where it is waited for"
            what = taken if (waits_at >= 0).any() else f"no call takes a result of {kind}"
            raise refusal(graph, what, remedy="state where it is needed (until=optimizer)")
        unknown: tuple[str, ...] = (CONTENTION, STORED, *how)
        if not known.all():
            unknown += (NO_CONSUMER.format(int((~known).sum()), len(known)),)
        return waiting(graph, leaves[known], waits_at[known], unknown)

    def _needed(
        self, graph: ExecutionGraph, issued_by: np.ndarray, leaves: np.ndarray
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """[n] the gap before the call that needs each result (-1 no one); and how it was given."""
        if self.until is not None:
            return _at_place(graph, issued_by, Place(self.until)), (BY_USER.format(self.until),)
        fed, lane = fed_by(graph), lane_keys(graph.nodes)
        on_host = chosen(graph.nodes, NodeType.HOST, NodeType.COMPUTE) & (graph.nodes["thread"] >= 0).to_numpy()
        on_host &= (graph.nodes["segment"] != Segment.T1).to_numpy()
        calls = {key: _takers(graph.nodes, on_host & (lane == key)) for key in np.unique(lane[issued_by]).tolist()}
        result, by_shape = np.full(len(issued_by), -1, dtype=np.int64), 0
        for place, (issuer, leaf) in enumerate(zip(issued_by.tolist(), leaves.tolist(), strict=True)):
            if issuer < 0:
                continue
            takers = [int(fed[node].min()) for node in (issuer, leaf - 1, leaf) if node in fed]
            result[place] = min(takers) if takers else _by_shape(graph, calls[lane[issuer]], issuer)
            by_shape += not takers and result[place] >= 0
        return result, (BY_SHAPE.format(by_shape),) if by_shape else ()


def _by_shape(graph: ExecutionGraph, calls: Takers, issuer: int) -> int:
    """The first call of the issuer's thread and step after it that takes the result's shape; -1 none.

    The result of a collective's call is its first tensor: the one that is written (c10d), or changed in place.
    """
    dims = graph.nodes["input_dims"].astype(object).iloc[issuer]
    shapes = all_shapes(parse(dims)) if isinstance(dims, str) else []
    takers = calls.get(shapes[0] if shapes else None, np.zeros(0, dtype=np.int64))
    after = takers[takers > issuer]
    step = graph.nodes["step"].to_numpy()
    return int(after[0]) if len(after) and step[after[0]] == step[issuer] else -1


def _later(graph: ExecutionGraph, leaves: np.ndarray, takers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([n] node that waits for each part, -1 none; [n] bool: it comes after the one that waits now).

    Where a stream waits now, the taker's first work on that stream waits (or that of the next call that has any), else
    the gap before the taker.
    """
    lane, unit = lane_keys(graph.nodes), host_units(graph)
    now = _waiter(graph, leaves)
    number, first = np.unique(unit, return_index=True)
    gaps = np.where(unit >= 0, first[np.searchsorted(number, unit)], np.arange(graph.num_nodes))  # before each call
    result = np.where(takers >= 0, gaps[takers], -1)
    unit = with_launched(graph, unit)
    for place in np.flatnonzero((takers >= 0) & is_type(graph, *ON_DEVICE)[now] & (now >= 0)).tolist():
        stream = np.flatnonzero((lane == lane[now[place]]) & (unit >= unit[takers[place]]))
        result[place] = stream[0] if len(stream) else -1
    apart = lane[result] != lane[now]
    return result, (result >= 0) & ((now < 0) | apart | (result > now))


def _waiter(graph: ExecutionGraph, leaves: np.ndarray) -> np.ndarray:
    """[n] node that waits for each part now: of a stream, else of a host; -1 none."""
    now = np.full(graph.num_nodes, -1, dtype=np.int64)
    for edge in (host_waits(graph), _exit_waits(graph, is_type(graph, *ON_DEVICE))):
        now[graph.edges["src"].to_numpy()[edge]] = graph.edges["dst"].to_numpy()[edge]
    return now[leaves]


def _at_place(graph: ExecutionGraph, issued_by: np.ndarray, place: Place) -> np.ndarray:
    """[n] the gap at the place of the issuer's rank and step, where it comes after the issuer; else -1."""
    nodes, lane = graph.nodes, lane_keys(graph.nodes)
    gaps = {rank: gap_at(graph, rank, place) for rank in graph.ranks}
    step = nodes["step"].to_numpy()
    result = np.full(len(issued_by), -1, dtype=np.int64)
    for at, issuer in enumerate(issued_by.tolist()):
        mine = gaps[int(nodes["rank"].iloc[issuer])] if issuer >= 0 else np.zeros(0, dtype=np.int64)
        later = mine[(step[mine] == step[issuer]) & ((lane[mine] != lane[issuer]) | (mine > issuer))]
        result[at] = later[0] if len(later) else -1
    return result
