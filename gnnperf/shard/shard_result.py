"""The result of `gnnperf shard`: judged and ranked placements, those compared with, what each rank has to do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import NodeType, OpFamily, each
from gnnperf.generate import Placement, Split, build_recommendation, parts_of, placement_as_written, vector_bytes
from gnnperf.graph import ExecutionGraph
from gnnperf.schedule import schedule_with_contention
from gnnperf.shard.placement_search import BY_SIZE, Effort, Ranked, candidates, random_placements, rank, seeds
from gnnperf.shard.problem import ARRANGE, INDICES, LOOKED_UP, MEMORY, UPDATED, Problem
from gnnperf.shard.surrogate_cost import State, Surrogate, surrogate

# The judge of a placement: the graph of the step, every node's latency, the schedule.
# Ranks differ in their tables only, so ranks that no one ever waits for need not be in the graph: those that look up,
# update, or do both with what comes before, longest among equally many kernels are enough. `tests/shard` holds it to
# the graph of all ranks.

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


NUM_RANDOM = 11
GIVEN = "as the file has it"


@dataclass(frozen=True)
class ShardResult:
    """The result."""

    problem: Problem  # requested
    ranked: tuple[Ranked, ...]  # the best placements, the fastest first
    judged: tuple[Judged, ...]  # of each of them
    compared_us: Mapping[str, float]  # steps of other placements, by their origin; none of random ones where none fits
    costs: Surrogate
    requested: int  # placements that were looked at


def ranked_placements(problem: Problem, effort: Effort, given: Placement | None, top: int) -> ShardResult:
    """Search, and judge what was found, the greedy placements and random ones by the schedule."""
    costs = surrogate(problem)
    known = {**seeds(costs.loads), **({} if given is None else {GIVEN: given})}
    requested: dict[Placement, Judged] = {}

    def price(placement: Placement) -> float:
        if placement not in requested:
            requested[placement] = judged(problem, costs.start(placement))
        return requested[placement].step_us

    ranked = rank(candidates(known.values(), costs, effort), known, price)[:top]
    compared = {name: price(placement) for name, placement in known.items()}
    drawn = each(list(random_placements(costs.loads, NUM_RANDOM, effort.seed)), "pricing random ones", "placements")
    random = [price(placement) for placement in drawn]
    if random:
        compared[f"median of {len(random)} random"] = median(random)
    return ShardResult(problem, ranked, tuple(requested[r.placement] for r in ranked), compared, costs, len(requested))


def rank_loads(result: ShardResult, placement: Placement) -> pd.DataFrame:
    """What each rank does in a step, and holds.

    Returns:
        [ranks] tables of which it holds a part; indices that it looks up; us of looking up and updating; bytes of the
        even all-to-all that keeps it as busy; bytes of tables, optimizer state and gradients of replicated tables.
    """
    plan, state = result.problem.placed(placement), result.costs.start(placement)
    placed = zip(plan.model.tables, placement, strict=True)
    copies = sum(table.pooling for table, p in placed if p.split is Split.REPLICATED or plan.ranks == 1)
    return pd.DataFrame({
        "tables": [sum(r in placed.ranks for placed in placement) for r in range(plan.ranks)],
        "lookups": state.per_rank[INDICES] * plan.batch + copies * plan.samples,
        "work_us": state.per_rank[LOOKED_UP] + state.per_rank[UPDATED],
        "vector_bytes": vector_bytes(parts_of(plan), plan.ranks, plan.samples),
        "memory_bytes": state.per_rank[MEMORY],
    })  # fmt: skip


def splits(placement: Placement) -> dict[str, int]:
    """How many tables are held in which way."""
    return {str(split): sum(placed.split is split for placed in placement) for split in Split}


def document(result: ShardResult) -> dict[str, object]:
    """Everything, for JSON."""
    problem, plan = result.problem, result.problem.plan
    return {
        "name": plan.name,
        "num_tables": len(problem.tables),
        "devices": problem.ranks,
        "hardware": problem.cluster.device.name,
        "cluster": problem.cluster.name,
        "batch": plan.batch,
        "capacity_bytes_per_device": problem.capacity_bytes,
        "num_judged": result.requested,
        "compared_step_us": dict(result.compared_us),
        "placements": [_one(result, r, j) for r, j in zip(result.ranked, result.judged, strict=True)],
    }


def _one(result: ShardResult, ranked: Ranked, stated: Judged) -> dict[str, object]:
    return {
        "step_us": ranked.step_us,
        "origin": ranked.origin,
        "critical_path_us": dict(stated.critical_us),
        "tables_by_split": splits(ranked.placement),
        "ranks": rank_loads(result, ranked.placement).to_dict("records"),
        "placement": placement_as_written(result.problem.tables, ranked.placement, result.problem.ranks),
    }


# The result as text.

GIB, MIB = float(1 << 30), float(1 << 20)
MOST_RANKS, MOST_TABLES = 16, 40  # in a list
ADVICE = {
    HOST: "the host issues kernels more slowly than the devices run them; no placement changes that",
    DENSE: "perceptrons, which every placement has",
    EXCHANGE: "vectors and indices on their way between devices",
    LOOKUPS: "looking up and updating rows",
    REDUCE: "sums of gradients of what is replicated",
}


def text(result: ShardResult) -> str:
    """Everything for a reader."""
    parts = (_head, _ranking, _comparison, _limits, _ranks, _placement)
    return "\n".join(line for part in parts for line in part(result))


def _head(result: ShardResult) -> Iterator[str]:
    problem, plan = result.problem, result.problem.plan
    where = f"{problem.ranks} x {problem.cluster.device.name} (cluster {problem.cluster.name})"
    yield f"{plan.name}: {len(problem.tables)} tables, batch {plan.batch:,}, on {where}"
    reserved = f"{problem.reserve_share:.0%} of it in reserve"
    yield f"memory for tables per device: {problem.capacity_bytes / GIB:.1f} GiB ({reserved})"
    yield f"{result.requested} placements judged by the predicted step"


def _ranking(result: ShardResult) -> Iterator[str]:
    yield ""
    yield " #  step        busiest: work  vectors     memory    work/mean   tables whole  row  column  replicated"
    for place, ranked in enumerate(result.ranked, start=1):
        loads, held = rank_loads(result, ranked.placement), splits(ranked.placement)
        most, mean_us = loads.max(), loads["work_us"].mean()
        uneven = most["work_us"] / mean_us if mean_us > 0 else 1.0
        busiest = f"{milliseconds(most['work_us']):>12s}  {most['vector_bytes'] / MIB:7.1f} MiB  " \
                  f"{most['memory_bytes'] / GIB:5.1f} GiB  {uneven:9.2f}"  # fmt: skip
        by_split = f"{held['table']:13d} {held['row']:4d} {held['column']:7d} {held['replicated']:11d}"
        yield f"{place:2d}  {milliseconds(ranked.step_us):10s}  {busiest}   {by_split}   {ranked.origin}"


def _comparison(result: ShardResult) -> Iterator[str]:
    best = result.ranked[0].step_us
    yield ""
    for name, step_us in result.compared_us.items():
        yield f"{name:26s} {milliseconds(step_us):>10s}   {step_us / best - 1.0:+.1%} against the best"
    yield f"the best saves {1.0 - best / result.compared_us[BY_SIZE]:.1%} of the step of greedy by size"


def _limits(result: ShardResult) -> Iterator[str]:
    given = result.judged[0]
    yield ""
    yield f"what the best step ({milliseconds(given.step_us)}) is made of, along its critical path:"
    known = sorted(given.critical_us.items(), key=lambda item: -item[1])
    rest = given.step_us - sum(given.critical_us.values())
    for name, us in known:
        yield f"  {us / given.step_us:6.1%}  {name}: {ADVICE[name]}"
    yield f"  {rest / given.step_us:6.1%}  launches and gaps"


def _ranks(result: ShardResult) -> Iterator[str]:
    yield ""
    yield "rank  tables  lookups       work        vectors     memory"
    loads = rank_loads(result, result.ranked[0].placement)
    for rank_, one in loads.nlargest(MOST_RANKS, "work_us").sort_index().iterrows():
        yield (f"{rank_:4d}  {one['tables']:6.0f}  {one['lookups']:12,.0f}  {milliseconds(one['work_us']):>10s}  "
               f"{one['vector_bytes'] / MIB:6.1f} MiB  {one['memory_bytes'] / GIB:6.1f} GiB")  # fmt: skip
    more = result.problem.ranks - MOST_RANKS
    if more > 0:
        yield f"      and {more} more with less work; --json has all"


def _placement(result: ShardResult) -> Iterator[str]:
    written = placement_as_written(result.problem.tables, result.ranked[0].placement, result.problem.ranks)
    yield ""
    yield "placement:"
    yield from (f"  {name}: {place}".replace("'", "") for name, place in list(written.items())[:MOST_TABLES])
    if len(written) > MOST_TABLES:
        yield f"  # and {len(written) - MOST_TABLES} more; --out FILE.yaml writes the plan, --json prints all"


def milliseconds(us: float) -> str:
    """Four digits."""
    return f"{us / 1e3:.4g} ms" if us >= 1e3 else f"{us:.4g} us"
