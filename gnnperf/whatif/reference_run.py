"""Touched nodes take their latency from a recording of the changed program; everything else keeps its own.

graph   step 0   step 1   step 2        lanes by rank and ordinal, nodes by content and order
          |        |        |
donor   step 0   step 1   step 0        step by step, in turn: what belongs together stays together
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gnnperf.core import WORK_TYPES, InputError, NodeType
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import align_runs
from gnnperf.whatif.edit import Edited


@dataclass(frozen=True)
class Aligned:
    """A step and its counterpart in the donor.

    Attributes:
        step, reference_run: single steps.
        matched: [num_nodes of step] the counterpart; -1 none.
        ids: [num_nodes of step] node ids in the whole window.
    """

    step: ExecutionGraph
    reference_run: ExecutionGraph
    matched: np.ndarray
    ids: np.ndarray


Touched = Callable[[Aligned], np.ndarray]  # -> [num_nodes of step] bool


@dataclass(frozen=True)
class LatenciesOf:
    """Latencies of another recording, for some nodes.

    Attributes:
        reference_run: another recording, of the changed program; its waits and step times are never read.
        touched: which nodes.
    """

    reference_run: ExecutionGraph
    touched: Touched

    def __call__(self, graph: ExecutionGraph) -> Edited:
        """Exchange latencies.

        Raises:
            InputError: one of the graphs has no whole step.
        """
        for each in (graph, self.reference_run):
            if not each.steps:
                raise InputError("has no whole step", where=f"graph {each.name!r}", remedy="record whole steps")
        latency = graph.nodes["latency_us"].to_numpy(copy=True)
        touched = np.zeros(graph.num_nodes, dtype=bool)
        missing = _Missing()
        for turn, label in enumerate(graph.steps):
            pair = _aligned(
                graph,
                self.reference_run,
                label.step,
                self.reference_run.steps[turn % len(self.reference_run.steps)].step,
            )
            wanted = self.touched(pair)
            value = np.where(pair.matched >= 0, pair.reference_run.nodes["latency_us"].to_numpy()[pair.matched], np.nan)
            taken = wanted & np.isfinite(value)
            here = pair.ids[taken]
            latency[here], touched[here] = value[taken], True
            missing = missing.plus(pair, wanted & ~taken)
        edited = replace(graph, nodes=graph.nodes.assign(latency_us=latency))
        return Edited(edited, touched, np.arange(graph.num_nodes), missing.sentences(len(graph.steps)))


def _aligned(graph: ExecutionGraph, reference_run: ExecutionGraph, step: int, reference_step: int) -> Aligned:
    mine, other = graph.step(step), reference_run.step(reference_step)
    return Aligned(mine, other, align_runs(mine, other), step_ids(graph, step))


def step_ids(graph: ExecutionGraph, step: int) -> np.ndarray:
    """[num_nodes of graph.step(step)] their ids in the whole graph."""
    hardware = graph.nodes["node_type"].isin([str(NodeType.DEVICE), str(NodeType.LINK)])
    return np.flatnonzero(((graph.nodes["step"] == step) | hardware).to_numpy())


@dataclass(frozen=True)
class _Missing:
    """What has no counterpart: sums over steps.

    Attributes:
        unanswered: touched nodes that the donor does not have.
        only_here, only_there: work nodes without a counterpart, and their time in us.
    """

    unanswered: int = 0
    only_here: tuple[int, float] = (0, 0.0)
    only_there: tuple[int, float] = (0, 0.0)

    def plus(self, pair: Aligned, unanswered: np.ndarray) -> _Missing:
        back = np.zeros(pair.reference_run.num_nodes, dtype=bool)
        back[pair.matched[pair.matched >= 0]] = True
        return _Missing(
            self.unanswered + int(unanswered.sum()),
            _sum(self.only_here, pair.step, pair.matched < 0),
            _sum(self.only_there, pair.reference_run, ~back),
        )

    def sentences(self, num_steps: int) -> tuple[str, ...]:
        result = []
        if self.unanswered:
            result.append(f"{self.unanswered / num_steps:.1f} touched nodes per step have no counterpart in the donor: "
                         "they keep their latency")  # fmt: skip
        for (count, time_us), whose in ((self.only_here, "this graph"), (self.only_there, "the donor")):
            if count:
                result.append(f"{count / num_steps:.1f} nodes per step ({time_us / num_steps:.0f} us) exist in {whose} "
                             "only: the edit neither adds nor removes any")  # fmt: skip
        return tuple(result)


def _sum(so_far: tuple[int, float], graph: ExecutionGraph, mask: np.ndarray) -> tuple[int, float]:
    work = mask & graph.nodes["node_type"].isin([str(t) for t in WORK_TYPES]).to_numpy()
    return so_far[0] + int(work.sum()), so_far[1] + float(np.nansum(graph.nodes["latency_us"].to_numpy()[work]))
