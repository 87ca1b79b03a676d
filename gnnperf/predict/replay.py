"""mode=replay: strict replay as a prediction; latencies are measured ones and class medians."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnperf.core import InputError, Source, StepTimeKind
from gnnperf.graph import ExecutionGraph, Prediction, StepLabel
from gnnperf.predict.advice import with_findings
from gnnperf.predict.assembly import choose_step, collect, other_step, step_time_kind
from gnnperf.predict.intervals import with_interval
from gnnperf.predict.rank_memory import with_memory
from gnnperf.predict.request import Request
from gnnperf.predict.step_prediction import Question, StepPrediction, provenance
from gnnperf.predict.step_rates import with_throughput
from gnnperf.predict.target import traced_device, traced_name
from gnnperf.schedule import ReplayResult, replay_step


def caveats(result: ReplayResult, structure_step: int) -> tuple[str, ...]:
    """How much of a replay is evidence, in sentences."""
    sentences = [
        f"Replay: {100 * result.aligned_share:.1f} % of the nodes of step {structure_step} are aligned with step "
        f"{result.measured.step} by content; class medians give {100 * result.median_time_share:.1f} % of the critical "
        "path's latency."
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


@dataclass(frozen=True)
class Replay:
    """The trace as its own prediction: the structure of a neighboring step, compared with the requested step.

    Raises:
        InputError: the trace has one step of one rank only.
    """

    graph: ExecutionGraph  # of the trace
    request: Request  # with mode=replay

    @cached_property
    def label(self) -> StepLabel:
        """The requested step."""
        return choose_step(self.graph, self.request.step)

    @cached_property
    def result(self) -> ReplayResult:
        """The replayed step."""
        check_evidence(self.graph)
        return replay_step(self.graph, other_step(self.graph, self.label).step, self.label.step)

    def predict(self) -> Prediction:
        """Latency of every node: measured, or the median of its class."""
        result, unknown = self.result, np.full(self.result.graph.num_nodes, np.nan)
        source = np.where(result.from_median, Source.CLASS_MEDIAN, Source.MEASURED).astype(object)
        return Prediction(result.graph, result.latency_us, result.lag_us, source, unknown, unknown, unknown, {})

    def step_prediction(self, prediction: Prediction) -> StepPrediction:
        """Collect the replay's own schedule; add findings and memory."""
        graph, request, label = self.graph, self.request, self.label
        structure = other_step(graph, label).step
        question = Question(
            label=label,
            structure_step=structure,
            mode=request.mode,
            hardware=traced_name(graph),
            cluster="",
            traced_hardware=traced_name(graph),
            same_hardware=True,
            provenance=provenance(request, graph.fingerprint),
            warnings=caveats(self.result, structure),
            device=traced_device(graph),
            traced_device=traced_device(graph),
        )
        replayed_us = self.result.makespan_us
        if step_time_kind(label) is StepTimeKind.PERIOD:
            assert self.result.period_us is not None, "a step with a measured period has a step before it"
            replayed_us = self.result.period_us
        estimate = with_interval(collect(prediction, self.result.schedule, replayed_us, question), None)
        estimate = with_findings(estimate, question) if request.findings else estimate
        estimate = with_throughput(estimate, request)
        return with_memory(estimate, request) if request.memory else estimate
