"""The judge of a candidate: the graph of its step with one rank per stage, every node's latency, the schedule.

A step of many micro-batches is periodic: between its begin and its end every micro-batch adds the same time. Long steps
are therefore judged at two smaller numbers of micro-batches, and extended by what the difference adds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnperf.analytic import AnalyticPredictor
from gnnperf.core import InputError
from gnnperf.generate import TransformerPlan, build_graph_of, rank_tensors
from gnnperf.hardware import ClusterSpec
from gnnperf.memory import planned_peak
from gnnperf.schedule import schedule_with_contention

MOST_LAYER_PASSES = 1200  # layers x micro-batches of a graph that is judged whole


@dataclass(frozen=True)
class Judged:
    """The step of one candidate."""

    step_us: float  # its makespan
    layer_passes: int  # layers x micro-batches of the graphs that were built: what the judge costs
    extended: bool  # whether its last micro-batches were added by their period


def judged(plan: TransformerPlan, cluster: ClusterSpec) -> Judged:
    """The step of a plan, as `gnnperf predict --plan` gives it without a network."""
    counts = _counts(plan)
    steps = [_makespan_us(with_micro_batches(plan, n), cluster) for n in counts]
    if len(steps) == 1:
        return Judged(steps[0], layer_passes(plan), False)
    (few, _), (short, long) = counts, steps
    step_us = long + (plan.num_micro_batches - 2 * few) * (long - short) / few
    return Judged(step_us, layer_passes(plan), True)


def layer_passes(plan: TransformerPlan) -> int:
    """What judging a plan will cost, in layers x micro-batches."""
    return plan.model.layers * sum(_counts(plan))


def _counts(plan: TransformerPlan) -> tuple[int, ...]:
    """Micro-batches of the graphs that are built: all; or what fills the pipeline, and twice that."""
    few = max(plan.parallelism.pipeline, 2) * plan.schedule.pipeline.warm_up
    count = plan.num_micro_batches
    whole = plan.model.layers * count <= MOST_LAYER_PASSES or count <= 3 * few
    return (count,) if whole else (few, 2 * few)


def with_micro_batches(plan: TransformerPlan, number: int) -> TransformerPlan:
    """The plan with another number of micro-batches of the same size."""
    batch = number * plan.parallelism.data * plan.schedule.micro_batch
    return replace(plan, schedule=replace(plan.schedule, global_batch=batch))


def _makespan_us(plan: TransformerPlan, cluster: ClusterSpec) -> float:
    graph = build_graph_of(plan)
    given = AnalyticPredictor().predict(graph, cluster)
    if given.uncovered_ops or given.isolated is None:
        names = ", ".join(given.uncovered_ops)
        raise InputError(f"no model covers {names}", where=f"plan {plan.name} on {cluster.device.name}",
                         remedy="name a GPU of the catalog")  # fmt: skip
    return schedule_with_contention(graph, given.latency_us, given.lag_us, given.isolated).schedule.makespan_us


def peak_bytes(plan: TransformerPlan) -> int:
    """Of the rank that needs most, as the caching allocator counts it."""
    most = 2 * plan.parallelism.pipeline * plan.schedule.chunks
    whole = plan.schedule.pipeline.keeps_all or plan.num_micro_batches <= most
    same = plan if whole else with_micro_batches(plan, most)  # no more are in flight
    return max(planned_peak(one).peak_bytes for one in rank_tensors(same))
