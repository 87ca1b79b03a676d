"""The judge of a placement: the graph of the step, every node's latency, the schedule.

Ranks differ in their tables only, so ranks that no one ever waits for need not be in the graph: those that look up,
update, or do both with what comes before, longest among equally many kernels are enough. `tests/shard` holds it to the
graph of all ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NodeType, OpFamily
from gnnperf.generate import build_recommendation
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import schedule_with_contention
from gnnperf.shard.problem import ARRANGE, INDICES, LOOKED_UP, UPDATED, Problem
from gnnperf.shard.surrogate_cost import State

LOOKUPS, EXCHANGE, REDUCE, DENSE, HOST = "lookups", "exchange", "all-reduce", "perceptrons", "host"
PARTS = (LOOKUPS, EXCHANGE, REDUCE, DENSE, HOST)
EXCHANGES = ("all_to_all", "reduce_scatter", "all_gather")


@dataclass(frozen=True)
class Judged:
    """The prediction for one placement."""

    step_us: float  # makespan of the step
    critical_us: Mapping[str, float]  # what lies on one critical path: lookups, exchange, all-reduce, perceptrons, host


def judged(problem: Problem, state: State) -> Judged:
    """The predicted step with a placement."""
    graph = build_recommendation(problem.placed(state.placement), awaited_ranks(state))
    given = AnalyticPredictor().predict(graph, problem.cluster)
    assert given.isolated is not None and not given.uncovered_ops, "plans consist of ops that have forms"
    result = schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated)
    on_path = np.where(result.schedule.on_critical_path, result.latency_us, 0.0)  # [num_nodes]
    what = _what(graph)
    return Judged(result.schedule.makespan_us, {name: float(on_path[what == name].sum()) for name in PARTS})


def awaited_ranks(state: State) -> tuple[int, ...]:
    """Ranks that others may wait for; among ranks with equally many kernels those where these take longest."""
    arrange, look_up, update = state.per_rank[[ARRANGE, LOOKED_UP, UPDATED]]
    holds = state.per_rank[INDICES] > 0  # ranks without a table have fewer kernels
    result = set()
    for kind in (holds, ~holds):
        ranks = np.flatnonzero(kind)
        if len(ranks):
            result |= {int(ranks[np.argmax(us[ranks])]) for us in (look_up, arrange + look_up, update)}
    return tuple(sorted(result))


def _what(graph: ExecutionGraph) -> np.ndarray:
    """[num_nodes] what a node's time is for; "" for hardware."""
    nodes = graph.nodes
    kind, family = (nodes[name].to_numpy().astype(str) for name in ("node_type", "family"))
    exchanged = nodes["collective"].isin(EXCHANGES).to_numpy()
    of_tables = nodes["op_name"].astype(str).str.startswith("fbgemm::").to_numpy() | (family == OpFamily.EMBEDDING)
    result = np.full(len(nodes), "", dtype=object)
    result[kind == NodeType.HOST] = HOST
    result[kind == NodeType.COMPUTE] = DENSE
    result[(kind == NodeType.COMPUTE) & of_tables] = LOOKUPS
    moved = np.isin(kind, (NodeType.COLLECTIVE, NodeType.COMM))
    result[moved] = REDUCE
    result[moved & exchanged] = EXCHANGE
    return result
