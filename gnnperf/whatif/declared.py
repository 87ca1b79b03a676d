"""Edits that declare a change of latencies and leave the latencies themselves to the predictor in use.

op latency    [T1|mm]-[T1|relu]    ->  [T1|mm x 0.5]-[T1|relu]
straggler     everything that one rank runs x 1.3
input stall   [T1|first op]        ->  [T1 + stall|first op]      in every step
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np

from gnnperf.core import InputError, NodeType, Segment, require
from gnnperf.graph import ExecutionGraph
from gnnperf.whatif.edit import Edited, LatencyChange, declared, delayed, scaled
from gnnperf.whatif.places import Place, gap_at
from gnnperf.whatif.units import OpSelector

ON_DEVICE = (NodeType.COMPUTE, NodeType.MEMORY)
WORK_OF = {"host": (NodeType.HOST,), "device": ON_DEVICE, "all": (NodeType.HOST, *ON_DEVICE)}  # Straggler.work


@dataclass(frozen=True)
class OpLatency:
    """Calls of an op take another time: their device work, or, where they have none, their host time.

    Attributes:
        op: its name (aten::mm), or a kind of collective (all_reduce): then its transfers.
        factor: of the latency that is predicted; None: `us` is given.
        us: the latency of each node; None: `factor` is given.
        phase: forward, backward, optimizer; None any.
        rank: None all.
    """

    op: str
    factor: float | None = None
    us: float | None = None
    phase: str | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        """Refuse both or none of factor and us."""
        both = (self.factor, self.us)
        require((self.factor is None) != (self.us is None), "factor, us of an op latency", both, "one of the two")
        value = self.factor if self.us is None else self.us
        require(value is not None and value >= 0, "factor or us of an op latency", value, "0 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Declare it.

        Raises:
            InputError: no such op, with the closest names.
        """
        chosen = self._nodes(graph)
        if not chosen.any():
            raise _no_op(graph, self)
        change = self._change(chosen)
        return Edited(graph, chosen, np.arange(graph.num_nodes), (), change)

    def _change(self, chosen: np.ndarray) -> LatencyChange:
        if self.us is not None:
            return declared(chosen, self.us)
        return scaled(chosen, 1.0 if self.factor is None else self.factor)

    def _nodes(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] bool."""
        nodes = graph.nodes
        ranks = None if self.rank is None else (self.rank,)
        named = OpSelector(self.op, phase=self.phase, ranks=ranks).names(nodes)
        works = named & nodes["node_type"].isin([str(t) for t in ON_DEVICE]).to_numpy()
        if works.any():
            return works
        transfers = (nodes["node_type"] == NodeType.COLLECTIVE) & nodes["step"].ge(0)
        transfers &= (nodes["collective"] == self.op) | (nodes["op_name"] == self.op)
        if self.phase is not None:
            transfers &= nodes["phase"] == self.phase
        if transfers.any() and self.rank is None:
            return transfers.to_numpy()
        return named & (nodes["node_type"] == NodeType.HOST).to_numpy()


def _no_op(graph: ExecutionGraph, requested: OpLatency) -> InputError:
    nodes = graph.nodes[graph.nodes["step"].ge(0) & (graph.nodes["segment"] != Segment.T1)]
    names = sorted({*map(str, nodes["op_name"].dropna()), *map(str, nodes["collective"].dropna())})
    near = [name for name in names if name.rpartition("::")[2] == requested.op.rpartition("::")[2]]
    near += [name for name in difflib.get_close_matches(requested.op, names, n=5, cutoff=0.5) if name not in near]
    limits = "".join(
        f" {word} {value}"
        for word, value in (("phase", requested.phase), ("rank", requested.rank))
        if value is not None
    )
    return InputError(f"no call of {requested.op!r}{f' in{limits}' if limits else ''}", where=f"graph {graph.name!r}",
                      allowed=f"an op of the graph, e.g. {', '.join((near or names)[:8])}")  # fmt: skip


@dataclass(frozen=True)
class Straggler:
    """One rank works slower.

    Attributes:
        rank: which.
        factor: of the latency of its work; below 1: faster.
        work: host, device or all. On a CPU the ops are device work, what lies between them is host work.
    """

    rank: int
    factor: float
    work: str = "all"

    def __post_init__(self) -> None:
        """Refuse what is no factor and no kind of work."""
        require(self.factor > 0, "factor of a straggler", self.factor, "above 0")
        require(self.work in WORK_OF, "work of a straggler", self.work, ", ".join(WORK_OF))

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Declare it.

        Raises:
            InputError: the graph has no such rank, or it has no such work.
        """
        nodes = graph.nodes
        chosen = (nodes["rank"] == self.rank) & nodes["node_type"].isin([str(t) for t in WORK_OF[self.work]])
        if not chosen.any():
            raise InputError(f"no {self.work} work of rank {self.rank}", where=f"graph {graph.name!r}",
                             allowed=f"rank {', '.join(map(str, graph.ranks))}")  # fmt: skip
        unknown = (f"whether rank {self.rank} also slows the transfers down that it takes part in",)
        change = scaled(chosen.to_numpy(), self.factor)
        return Edited(graph, chosen.to_numpy(), np.arange(graph.num_nodes), unknown, change)


@dataclass(frozen=True)
class InputStall:
    """The main thread waits for data before each step.

    Attributes:
        us: how long.
        rank: which rank; None all.
    """

    us: float
    rank: int | None = None

    def __post_init__(self) -> None:
        """Refuse a negative stall."""
        require(self.us >= 0, "us of an input stall", self.us, "0 or more")

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Declare it.

        Raises:
            InputError: the graph has no such rank.
        """
        chosen = np.zeros(graph.num_nodes, dtype=bool)
        for rank in graph.ranks if self.rank is None else (self.rank,):
            chosen[gap_at(graph, rank, Place.START)] = True
        unknown = ("how much of the stall work of other threads hides, and what that work costs the host",)
        return Edited(graph, chosen, np.arange(graph.num_nodes), unknown, delayed(chosen, self.us))
