"""Edits of recordings that take latencies or waits from a recording of the changed program; nothing else of it is read.

graph           step 0   step 1   step 2        lanes by rank and ordinal, nodes by content and order
                  |        |        |
reference run   step 0   step 1   step 0        step by step, in turn: what belongs together stays together
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gnnperf.core import WORK_TYPES, InputError, NodeType, OpFamily, Phase, Segment
from gnnperf.graph import ExecutionGraph, content_keys
from gnnperf.schedule import align
from gnnperf.whatif import Edited
from gnnperf.whatif.edit import rewritten
from gnnperf.whatif.units import host_units
from gnnperf.whatif.waits import CONTENTION, exits, host_waits, waiting

OF_ANY_RUN = ("node_type", "op_name", "segment", "ordinal", "collective")


@dataclass(frozen=True)
class Aligned:
    """A step and its counterpart in the reference run."""

    # step, reference_run: single steps
    step: ExecutionGraph
    reference_run: ExecutionGraph
    matched: np.ndarray  # [num_nodes of step] the counterpart; -1 none
    ids: np.ndarray  # [num_nodes of step] node ids in the whole window

    @property
    def back(self) -> np.ndarray:
        """[num_nodes of reference_run] the counterpart; -1 none."""
        result = np.full(self.reference_run.num_nodes, -1, dtype=np.int64)
        result[self.matched[self.matched >= 0]] = np.flatnonzero(self.matched >= 0)
        return result


def align_runs(structure: ExecutionGraph, other: ExecutionGraph) -> np.ndarray:
    """[num_nodes of structure] the matching node of `other`; -1 unaligned. Both are single steps, of any two runs.

    Lanes correspond by rank and ordinal. Names of kernels change with shapes and devices, so ops and segments are
    compared; they repeat within a lane, and their order decides.
    """
    return align(*(
        replace(graph, nodes=graph.nodes.assign(content_key=content_keys(graph.nodes, OF_ANY_RUN)))
        for graph in (structure, other)
    ))  # fmt: skip


def aligned_steps(graph: ExecutionGraph, reference_run: ExecutionGraph) -> Iterator[Aligned]:
    """Every step of the graph, with the steps of the reference run in turn.

    Raises InputError: one of the graphs has no whole step.
    """
    for each in (graph, reference_run):
        if not each.steps:
            raise InputError("has no whole step", where=f"graph {each.name!r}", remedy="record whole steps")
    hardware = graph.nodes["node_type"].isin([str(NodeType.DEVICE), str(NodeType.LINK)])
    for turn, label in enumerate(graph.steps):
        mine = graph.step(label.step)
        other = reference_run.step(reference_run.steps[turn % len(reference_run.steps)].step)
        ids = np.flatnonzero(((graph.nodes["step"] == label.step) | hardware).to_numpy())
        yield Aligned(mine, other, align_runs(mine, other), ids)


Touched = Callable[[Aligned], np.ndarray]  # -> [num_nodes of step] bool


@dataclass(frozen=True)
class LatenciesOf:
    """Latencies of another recording, for some nodes."""

    reference_run: ExecutionGraph  # another recording, of the changed program
    touched: Touched  # which nodes

    def __call__(self, graph: ExecutionGraph) -> Edited:
        latency = graph.nodes["latency_us"].to_numpy(copy=True)
        touched = np.zeros(graph.num_nodes, dtype=bool)
        missing = np.zeros(5)  # touched nodes without a counterpart; nodes and us of this graph only; of the other only
        for pair in aligned_steps(graph, self.reference_run):
            wanted = self.touched(pair)
            other_us = pair.reference_run.nodes["latency_us"].to_numpy()
            value = np.where(pair.matched >= 0, other_us[pair.matched], np.nan)
            taken = wanted & np.isfinite(value)
            latency[pair.ids[taken]], touched[pair.ids[taken]] = value[taken], True
            only = (*_work(pair.step, pair.matched < 0), *_work(pair.reference_run, pair.back < 0))
            missing += [(wanted & ~taken).sum(), *only]
        return rewritten(graph, touched, _sentences(missing / len(graph.steps)), latency_us=latency)


def _work(graph: ExecutionGraph, mask: np.ndarray) -> tuple[float, float]:
    work = mask & graph.nodes["node_type"].isin([str(t) for t in WORK_TYPES]).to_numpy()
    return float(work.sum()), float(np.nansum(graph.nodes["latency_us"].to_numpy()[work]))


def _sentences(missing: np.ndarray) -> tuple[str, ...]:
    touched, here, here_us, there, there_us = missing
    result = []
    if touched:
        result.append(f"{touched:.1f} touched nodes per step have no counterpart in the reference run: "
                      "they keep their latency")  # fmt: skip
    for count, us, whose in ((here, here_us, "this graph"), (there, there_us, "the reference run")):
        if count:
            result.append(f"{count:.1f} nodes per step ({us:.0f} us) exist in {whose} only: the edit neither adds nor "
                          "removes any")  # fmt: skip
    return tuple(result)


@dataclass(frozen=True)
class WaitAs:
    """Collectives are waited for where another recording waits for them: the reverse of `Block`, given the original."""

    other: ExecutionGraph  # a recording of the program whose waits are taken; only which op waits is read, no time

    def __call__(self, graph: ExecutionGraph) -> Edited:
        leaves = exits(graph, None, None)
        waits_at = np.full(graph.num_nodes, -1, dtype=np.int64)
        for pair in aligned_steps(graph, self.other):
            waiter = np.full(pair.reference_run.num_nodes + 1, -1, dtype=np.int64)  # the last row: unmatched
            edges, edge = pair.reference_run.edges, host_waits(pair.reference_run)
            waiter[edges["src"].to_numpy()[edge]] = pair.back[edges["dst"].to_numpy()[edge]]
            at = waiter[pair.matched]
            waits_at[pair.ids[at >= 0]] = pair.ids[at[at >= 0]]
        known = waits_at[leaves] >= 0
        unknown: tuple[str, ...] = (CONTENTION,)
        if not known.all():
            unknown += (f"where the other program waits for {int((~known).sum())} of {len(known)} parts: "
                        "they stay as they are",)  # fmt: skip
        return waiting(graph, leaves[known], waits_at[leaves[known]], unknown)


# Which nodes a known change touches, a rule per kind of change.


def transfers(pair: Aligned) -> np.ndarray:
    """[num_nodes] bool: collectives' transfers and exits: what another link changes."""
    nodes = pair.step.nodes
    return ((nodes["node_type"] == NodeType.COLLECTIVE) | (nodes["segment"] == Segment.EXIT)).to_numpy()


def changed_inputs(pair: Aligned) -> np.ndarray:
    """[num_nodes] bool: calls and messages of other sizes: what a larger table or batch changes, on whichever rank.

    A call counts as a whole, with the gap before it, in which its inputs are prepared and earlier results freed. The
    gradient of a table may be sparse: then its shape is the table's, however many rows were looked up. So where
    look-ups changed, the optimizer's calls on the same table count too.
    """
    known = pair.matched >= 0
    mine, other = pair.step.nodes, pair.reference_run.nodes.iloc[np.maximum(pair.matched, 0)]
    dims = (_texts(mine["input_dims"]) != _texts(other["input_dims"])) & known
    before, after = mine["message_bytes"].to_numpy(), other["message_bytes"].to_numpy()
    sent = (before != after) & ~(np.isnan(before) & np.isnan(after)) & known
    touched, unit = dims | _updates_of_tables(mine, dims), host_units(pair.step)
    return touched | (np.isin(unit, unit[touched & (unit >= 0)]) & known) | sent


def _texts(column: pd.Series) -> np.ndarray:
    return column.astype("str").fillna("").to_numpy(dtype=object)


def _updates_of_tables(nodes: pd.DataFrame, changed: np.ndarray) -> np.ndarray:
    """[num_nodes] bool: calls of the optimizer on tables whose look-ups changed."""
    looked_up = changed & (nodes["family"] == OpFamily.EMBEDDING).to_numpy()
    tables = {_first_shape(dims) for dims in nodes["input_dims"][looked_up].dropna().unique()} - {""}
    updates = (nodes["phase"] == Phase.OPTIMIZER).to_numpy() & nodes["input_dims"].notna().to_numpy()
    result = np.zeros(len(nodes), dtype=bool)
    result[updates] = [_first_shape(dims) in tables for dims in nodes["input_dims"][updates]]
    return result


def _first_shape(dims: str) -> str:
    """`[[4,2],[3]]` -> `[4,2]`; "" if the first input is no tensor."""
    shapes = json.loads(dims)
    return json.dumps(shapes[0]) if shapes and shapes[0] else ""
