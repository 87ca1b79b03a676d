"""A run of elementwise ops becomes one op, as a compiler would make it.

before   [T1|add]-[T1|mul]-[T1|relu]-[T1|linear]      each reads its inputs and writes its result
after    [T1|relu*]-[T1|linear]                       * all FLOPs; intermediate results stay in registers
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from gnnperf.core import NodeType, OpFamily, Relation, Segment
from gnnperf.generate import Shape, parse
from gnnperf.graph import DTYPE_BYTES, ExecutionGraph, consecutive, lane_keys
from gnnperf.whatif.batch_shapes import all_shapes
from gnnperf.whatif.edit import Edited, chosen, ends, refusal
from gnnperf.whatif.units import host_units, remove

HANDED_OVER = (
    "whether each op of a chain reads what the one before it wrote (they have equal shapes), and whether another "
    "op reads it: then it must be written all the same"
)
ONE_OP = "how fast the fused op is: it is predicted as the last op of its chain, with the bytes and FLOPs of all"


@dataclass(frozen=True)
class FuseElementwise:
    """Every run of elementwise ops with results of one shape becomes one op."""

    phase: str | None = None  # forward, backward, optimizer; None any

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Fuse; the last op of a chain stays, with the FLOPs of all and the bytes that still move."""
        before, after = _links(graph, self._fits(graph))
        if not len(before):
            allowed = f"a program that has them{f' in {self.phase}' if self.phase else ''}"
            raise refusal(graph, "no two elementwise ops of one shape in a row", allowed)
        nodes = graph.nodes
        flops, moved = nodes["flops"].to_numpy(copy=True), nodes["bytes"].to_numpy(copy=True)
        dims, dtype = (nodes[name].astype(object).to_numpy() for name in ("input_dims", "dtype"))
        fused = np.zeros(graph.num_nodes, dtype=bool)
        for one, next_ in zip(before.tolist(), after.tolist(), strict=True):  # in order: sums run along a chain
            flops[next_] += flops[one]
            moved[next_] += moved[one] - 2.0 * prod(_result(dims, one)) * DTYPE_BYTES[dtype[one]]
            fused[next_] = True
        gone = np.zeros(graph.num_nodes, dtype=bool)
        gone[before] = True
        fused &= ~gone
        latency_us = nodes["latency_us"].mask(fused)
        given = replace(graph, nodes=nodes.assign(flops=flops, bytes=moved, latency_us=latency_us))
        edited, came_from = remove(given, gone | _host_side(graph, gone))
        chains = int(fused.sum())
        unknown = (HANDED_OVER, f"{ONE_OP} ({len(before) + chains} ops become {chains})")
        return Edited(edited, fused[came_from], came_from, unknown)

    def _fits(self, graph: ExecutionGraph) -> np.ndarray:
        """[num_nodes] bool: elementwise ops of one kernel whose cost and shapes are known."""
        nodes = graph.nodes
        known = nodes[["input_dims", "flops", "bytes"]].notna().all(axis=1) & nodes["dtype"].isin(list(DTYPE_BYTES))
        equal = {"family": OpFamily.ELEMENTWISE, "num_siblings": 1, "phase": self.phase}
        return chosen(nodes, NodeType.COMPUTE, **equal) & known.to_numpy()


def _links(graph: ExecutionGraph, fits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Neighbors of a chain, first to last, of one step; no one but the next op waits for the one before."""
    nodes = graph.nodes
    gap = (nodes["segment"] == Segment.T1).to_numpy()
    before, after = consecutive(np.where(gap, -1, lane_keys(nodes)))
    waited = np.zeros(graph.num_nodes, dtype=bool)
    waited[ends(graph, Relation.WAITS)[0]] = True
    for column in ("step", "dtype"):
        values = nodes[column].astype(object).to_numpy()
        fits_both = fits[before] & fits[after] & (values[before] == values[after])
        before, after = before[fits_both], after[fits_both]
    dims = nodes["input_dims"].astype(object).to_numpy()
    handed = [_hands_over(dims, *pair) for pair in zip(before, after, strict=True)]
    same = ~waited[before] & np.array(handed, dtype=bool)
    order = np.argsort(after[same], kind="stable")
    return before[same][order], after[same][order]


def _shapes(dims: np.ndarray, node: int) -> list[Shape]:
    return all_shapes(parse(str(dims[node])))


def _result(dims: np.ndarray, node: int) -> Shape:
    """The shape of an elementwise op's result: its inputs, broadcast; the largest input where they are not alike."""
    return max(_shapes(dims, node), key=lambda shape: (prod(shape), len(shape)), default=())


def _hands_over(dims: np.ndarray, one: int, next_: int) -> bool:
    """Whether the next op has an input, and the result, of the shape of this one's result."""
    shape = _result(dims, one)
    return bool(shape) and shape in _shapes(dims, next_) and _result(dims, next_) == shape


def _host_side(graph: ExecutionGraph, gone: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: the gap before each op that goes, and host segments of calls whose device work all goes."""
    unit = host_units(graph)
    src, dst = ends(graph, Relation.LAUNCHES)
    stays = np.unique(unit[src[~gone[dst]]])
    going = np.union1d(unit[src[gone[dst]]], unit[gone & (unit >= 0)])
    return np.isin(unit, np.setdiff1d(going, stays)) & (unit >= 0)
