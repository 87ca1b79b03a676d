"""The profiler's own cost per event, and graphs without it (after RL-Scope, Gleeson et al. 2021).

measured   |T1 + A's cost| op A: own work + cost of its children |T1 + B's cost| ...
without    |T1| op A: own work |T1| ...
A node is shortened by what the events that open in it cost, and never below nothing: what its measured time cannot hold
comes out of the next node of its thread, or stays in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from gnnperf.core import InputError, Relation, Segment, compiled
from gnnperf.graph.execution_graph import STEP_END, ExecutionGraph

MOST_US = 1e4  # of one event


@dataclass(frozen=True)
class ProfilerCost:
    """Microseconds that one event adds to a step."""

    op_us: float  # an op or an autograd range, before it opens and after it closes: outside of its own interval
    range_us: float  # an annotation, likewise
    call_us: float  # a runtime call, inside its own interval
    step_us: float  # the mark between two steps, before the next one opens
    provenance: str = ""  # how these numbers were measured

    def __post_init__(self) -> None:
        """Refuse what no cost can be. Raises InputError: a cost is negative or not finite."""
        for kind, value in self.by_kind().items():
            if not 0 <= value <= MOST_US:  # NaN is not
                raise InputError(f"{kind} is {value}", where="profiler cost", allowed=f"0 to {MOST_US:g}")

    def by_kind(self) -> dict[str, float]:
        """The numbers by name."""
        return {f.name: float(getattr(self, f.name)) for f in fields(self) if f.name != "provenance"}

    def times(self, factor: float) -> "ProfilerCost":
        """The cost, scaled to a step: that of a loop, or one that was timed without the profiler."""
        costs = {kind: factor * us for kind, us in self.by_kind().items()}
        return ProfilerCost(**costs, provenance=f"{self.provenance}; x {factor:.2f}")


# Where no card states it: medians over the recordings of one machine each, with shapes recorded.
TYPICAL_ON_GPU = ProfilerCost(2.61, 1.51, 0.84, 41.3, "typical: median of 22 runs on one H200 (datasets/h200)")
TYPICAL_ON_CPU = ProfilerCost(0.84, 0.68, 0.0, 38.7, "typical: median of 372 ranks on one CPU (datasets/cpu-again)")
# Times a loop's cost, inside of a step: in a loop, caches probably hold what the profiler needs. Median of 34 H200 runs
# (`research.benchmarks.unprofiled_steps`).
IN_STEPS = 1.68


def pooled_cost(cost: "ProfilerCost | None", typical: "ProfilerCost") -> "ProfilerCost":
    """The geometric mean of a measured cost and the typical one: one short measurement errs as much as machines differ.

    A measured 0 was less than its noise: it is the typical cost, and so is a card without costs (None).
    """
    if cost is None:
        return typical
    usual = typical.by_kind()
    both = {kind: float(np.sqrt((us or usual[kind]) * usual[kind])) for kind, us in cost.by_kind().items()}
    return ProfilerCost(**both, provenance=f"{cost.provenance}; {typical.provenance}")


def cost_of_card(card: Mapping[str, object]) -> "ProfilerCost | None":
    """The cost that a run's card carries, mean over its ranks; None if it carries none.

    Raises:
        InputError: the card's numbers cannot be costs.
    """
    ranks = card.get("ranks")
    parts = [part for part in ranks if isinstance(part, Mapping)] if isinstance(ranks, list) else []
    result = [part["profiler_cost"] for part in parts if isinstance(part.get("profiler_cost"), Mapping)]
    if not result:
        return None
    kinds = [f.name for f in fields(ProfilerCost) if f.name != "provenance"]
    try:
        means = {kind: float(np.mean([float(part[kind]) for part in result])) for kind in kinds}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("is not a profiler's cost", where="run.json, ranks, profiler_cost",
                         allowed=", ".join(kinds)) from error  # fmt: skip
    return ProfilerCost(**means, provenance="measured on the recording machine after the recording (run.json)")


def profiler_us(
    graph: ExecutionGraph, latency_us: np.ndarray, lag_us: np.ndarray, cost: "ProfilerCost"
) -> tuple[np.ndarray, np.ndarray]:
    """([num_nodes], [num_edges]) what the profiler's own cost is of measured times, at most all of them.

    `latency_us` [num_nodes] and `lag_us` [num_edges] are measured, NaN unknown. The graph counts opened events.
    """
    due_us = node_cost_us(graph.nodes, cost)
    taken_us = _taken(graph.nodes, due_us, np.nan_to_num(latency_us))
    # In the lag from the start of an issuing op to its host collective: the op's events, one range.
    src = graph.edges["src"].to_numpy()
    by_call = (graph.nodes["segment"] == Segment.T4).to_numpy()[src]
    issues = (graph.edges["relation"] == Relation.LAUNCHES).to_numpy() & ~by_call
    known = issues & ~np.isnan(graph.edges["lag_us"].to_numpy())
    lag_cost_us = np.where(known, due_us[src] + cost.range_us, 0.0)  # [num_edges]
    return taken_us, np.minimum(lag_cost_us, np.maximum(np.nan_to_num(lag_us), 0.0))


def node_cost_us(nodes: pd.DataFrame, cost: "ProfilerCost") -> np.ndarray:
    """[num_nodes] what the events that open in each node cost."""
    opened = nodes["opened_ops"].to_numpy() * cost.op_us + nodes["opened_ranges"].to_numpy() * cost.range_us
    call = (nodes["segment"] == Segment.T4).to_numpy()
    # The gap at the end of a step that another one follows; its mark falls into it.
    ends = (nodes["segment"] == Segment.T1) & (nodes["op_name"] == STEP_END) & (nodes["opened_ranges"] > 0)
    return opened + np.where(call, cost.call_us, 0.0) + np.where(ends.to_numpy(), cost.step_us, 0.0)


def _taken(nodes: pd.DataFrame, due_us: np.ndarray, latency_us: np.ndarray) -> np.ndarray:
    """[num_nodes] what comes out of each node: what is due, and what those before it on its thread could not give.

    Where a thread waits, what is still due is dropped: it was before the wait, and what comes after does not hold it.
    """
    own = np.flatnonzero((nodes["thread"] >= 0).to_numpy())  # [num_host] node ids
    rank, thread = nodes["rank"].to_numpy()[own].astype(np.int64), nodes["thread"].to_numpy()[own]
    lane = rank * (int(thread.max(initial=0)) + 1) + thread  # [num_host] host thread over all ranks
    goes_on = np.r_[False, lane[1:] == lane[:-1]][: len(own)] & (nodes["blocked_us"].to_numpy()[own] == 0.0)
    taken_us = np.zeros(len(nodes))
    taken_us[own] = _passed_on(goes_on, due_us[own], latency_us[own])
    return taken_us


@compiled
def _passed_on(goes_on, due_us, latency_us):  # type: ignore[no-untyped-def] # pragma: no cover
    """[num_host] what comes out of each node; what it cannot give is due at the next one, if that goes on."""
    taken_us, owed_us = np.zeros(len(due_us)), 0.0
    for i in range(len(due_us)):
        owed_us = (owed_us if goes_on[i] else 0.0) + due_us[i]
        taken_us[i] = min(owed_us, latency_us[i])
        owed_us -= taken_us[i]
    return taken_us
