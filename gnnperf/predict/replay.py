"""mode=replay: strict replay as an answer; latencies are measured ones and class medians."""

from __future__ import annotations

import math

import numpy as np

from gnnperf.core import InputError, Source, StepTimeKind
from gnnperf.graph import ExecutionGraph, Prediction
from gnnperf.schedule import ReplayResult


def as_prediction(result: ReplayResult) -> Prediction:
    """The latencies of a replay; there are no intervals and no analytical answer."""
    unknown = np.full(result.graph.num_nodes, np.nan)
    return Prediction(
        graph=result.graph,
        latency_us=result.latency_us,
        lag_us=result.lag_us,
        source=np.where(result.from_median, Source.CLASS_MEDIAN, Source.MEASURED).astype(object),
        analytic_latency_us=unknown,
        latency_low_us=unknown,
        latency_high_us=unknown,
        uncovered_ops={},
    )


def replayed_step_time_us(result: ReplayResult, kind: StepTimeKind) -> float:
    """Period or makespan of the replayed step, from the measured boundary."""
    if kind is not StepTimeKind.PERIOD:
        return result.makespan_us
    assert result.period_us is not None, "a step with a measured period has a step before it"
    return result.period_us


def caveats(result: ReplayResult, structure_step: int) -> tuple[str, ...]:
    """How much of a replay is evidence, in sentences."""
    sentences = [
        f"Replay: {100 * result.aligned_share:.1f} % of the nodes of step {structure_step} are aligned with step "
        f"{result.measured.step} by content; class medians give {100 * result.median_time_share:.1f} % of the critical "
        "path's latency.",
    ]
    if result.peer_time_share > 0:
        sentences.append(
            f"Replay: {100 * result.peer_time_share:.1f} % of the critical path's latency is time in collectives whose "
            "peers were not traced, as measured."
        )
    if result.num_unknown:
        sentences.append(f"Replay: {result.num_unknown} nodes and gaps were never measured; they take no time in it.")
    if structure_step != result.measured.step:
        sentences.append(f"Measured latencies and tracks of single nodes are those of step {structure_step}.")
    else:
        sentences.append("The trace has one step only: class medians are fitted on the other ranks.")
    return tuple(sentences)


def check_evidence(graph: ExecutionGraph) -> None:
    """Refuse a replay that has nothing to fit on, or only what it is compared with."""
    if all(math.isnan(step.makespan_us) for step in graph.steps):
        raise InputError("mode=replay needs measured latencies, and the program was captured, not run",
                         where=graph.name, remedy="use mode=hybrid")  # fmt: skip
    if len(graph.steps) == 1 and len(graph.ranks) == 1:
        raise InputError(
            "mode=replay fits on other steps or other ranks, and the trace has one step of one rank", where=graph.name,
            remedy="record at least two steps, or use another mode",
        )  # fmt: skip
