"""predict(): from a trace or a plan to the answer about one of its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from gnnperf.analytic import AnalyticPredictor
from gnnperf.analytic.bounds import node_bounds
from gnnperf.core.progress import task
from gnnperf.generate.families import build_graph_of, misplaced
from gnnperf.gnn.data.processors import Processor
from gnnperf.gnn.intervals import StepIntervals
from gnnperf.graph import load_graph
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.graph.prediction import Predictor
from gnnperf.hardware.placement import with_bucket
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.predict.advice import with_findings
from gnnperf.predict.assemble import Question, assemble, collect
from gnnperf.predict.buckets import learned_beside, untold
from gnnperf.predict.config import Hosts, Mode
from gnnperf.predict.device_intervals import UnseenDevices
from gnnperf.predict.edited import with_edits
from gnnperf.predict.jitter import jitter_asked
from gnnperf.predict.laws import laws_text
from gnnperf.predict.measured import read_measured
from gnnperf.predict.processors import WithoutIntervals, calibrated_on, other_processor
from gnnperf.predict.provenance import provenance
from gnnperf.predict.rank_memory import with_memory
from gnnperf.predict.replay import as_prediction, caveats, check_evidence, replayed_step_time_us
from gnnperf.predict.request import Request, check
from gnnperf.predict.similar import SimilarPredictor
from gnnperf.predict.step_choice import choose_step, other_step, step_time_kind
from gnnperf.predict.step_interval import with_interval
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.predict.target import Target, choose_target, traced_device, traced_name
from gnnperf.predict.trace_hosts import said, who_tells, with_hosts
from gnnperf.schedule.replay import replay_step

NO_CHECKPOINT = "No checkpoint was given (checkpoint=FILE): latencies come from the analytical model."
MEASURED_TOO = "The interval of the step time was calibrated without what a table or the trace itself tells here."


def predict(request: Request) -> StepPrediction:
    """Answer for one step of a trace.

    Raises:
        InputError: the request contradicts itself, or trace, hardware or checkpoint cannot be used.
    """
    check(request)
    graph = asked_graph(request)
    answer = replayed(graph, request) if request.mode is Mode.replay else predicted(graph, request)
    return answer if request.memory is None else with_memory(answer, request, request.memory)


def asked_graph(request: Request) -> ExecutionGraph:
    """The graph of the trace, or of the plan."""
    if request.trace is not None:
        graph = load_graph(request.trace, request.cache_dir)
        return replace(graph, placement=with_bucket(graph.placement, request.bucket_bytes))
    assert request.plan is not None, "checked"
    return build_graph_of(request.plan)


def predicted(graph: ExecutionGraph, request: Request) -> StepPrediction:
    """The answer of a model for one step of `graph`."""
    label = choose_step(graph, request.step)
    target = choose_target(graph, request.hardware, request.cluster).with_laws(request.collectives)
    with task("predicting latencies", 2, "parts") as advance:  # loading who answers is the first
        answers = answers_for(request.mode, request.checkpoint, request.measured)
        hosts = _hosts(request, target, answers)
        predictor: Predictor = UnseenDevices(with_hosts(answers.predictor, graph, hosts, target))
        elsewhere = "" if request.hardware else other_processor(request.trace, answers.processors)
        if elsewhere:
            predictor = WithoutIntervals(predictor, elsewhere)
        advance(1.0)
        prediction = predictor.predict(graph.step(label.step).for_predictors(), target.cluster)
    question = Question(
        label=label,
        structure_step=label.step,
        mode=request.mode,
        hardware=target.cluster.device.name,
        cluster=target.cluster.name,
        traced_hardware=traced_name(graph),
        same_hardware=target.same_hardware,
        provenance=provenance(
            request.trace,
            answers.checkpoint_sha256,
            graph.fingerprint,
            laws_text(target.cluster),
            request.measured,
            hosts,
        ),
        warnings=(
            *([NO_CHECKPOINT] if request.mode is Mode.hybrid and request.checkpoint is None else []),
            *_uncalibrated(request, hosts, answers),
            *untold(graph, answers.bucket_bytes, request.cluster is None),
            *said(graph, hosts, target),
            *target.warnings,
            *_misplaced(request, target),
        ),
        jitter=jitter_asked(request.jitter, graph),
        device=target.cluster.device,
        traced_device=target.traced,
    )
    with task("putting the step together", 3, "parts") as advance:
        answer = assemble(prediction, question)
        advance(1.0)
        answer = answer if elsewhere else with_interval(answer, answers.steps)
        advance(1.0)
        answer = replace(answer, bound=node_bounds(prediction.graph, target.cluster.device))
    if request.findings:
        answer = with_findings(answer, question, predictor, target.cluster)
    if not request.whatif:
        return answer

    def cluster_of(edited: ExecutionGraph) -> ClusterSpec:
        return choose_target(edited, request.hardware, request.cluster).with_laws(request.collectives).cluster

    return with_edits(answer, request.whatif, predictor, target.cluster, question, request.collectives, cluster_of)


def _uncalibrated(request: Request, hosts: Hosts, answers: Answers) -> tuple[str, ...]:
    told = request.measured is not None or hosts is Hosts.trace
    return (MEASURED_TOO,) if told and answers.steps is not None else ()


def _hosts(request: Request, target: Target, answers: Answers) -> Hosts:
    """Who tells host work: mode=gnn is the network alone, a trained checkpoint learned its hosts, a plan has none."""
    by_model = request.mode is Mode.gnn or request.plan is not None or answers.learned_hosts
    return Hosts.model if request.hosts is Hosts.auto and by_model else who_tells(request.hosts, target)


def _misplaced(request: Request, target: Target) -> tuple[str, ...]:
    return () if request.plan is None else misplaced(request.plan, target.cluster.ranks_per_node)


def replayed(graph: ExecutionGraph, request: Request) -> StepPrediction:
    """The answer of the trace itself: the structure of a neighboring step, compared with the step asked for."""
    check_evidence(graph)
    label = choose_step(graph, request.step)
    structure = other_step(graph, label)
    result = replay_step(graph, structure.step, label.step)
    question = Question(
        label=label,
        structure_step=structure.step,
        mode=request.mode,
        hardware=traced_name(graph),
        cluster="",
        traced_hardware=traced_name(graph),
        same_hardware=True,
        provenance=provenance(request.trace, None, graph.fingerprint),
        warnings=caveats(result, structure.step),
        device=traced_device(graph),
        traced_device=traced_device(graph),
    )
    replayed_us = replayed_step_time_us(result, step_time_kind(label))
    answer = collect(as_prediction(result), result.schedule, replayed_us, question)
    answer = with_interval(answer, None)
    return with_findings(answer, question) if request.findings else answer


@dataclass(frozen=True)
class Answers:
    """Who answers, and what is known of them.

    Attributes:
        predictor: who answers.
        steps: how sure its step times are; None: nobody knows.
        processors: that its validation runs ran on; () unknown.
        bucket_bytes: of the token buckets that its training was told of; None: of none.
        checkpoint_sha256: of the checkpoint; None: there is none.
        learned_hosts: whether the checkpoint was trained on host work.
    """

    predictor: Predictor
    steps: StepIntervals | None = None
    processors: tuple[Processor, ...] = ()
    bucket_bytes: float | None = None
    checkpoint_sha256: str | None = None
    learned_hosts: bool = False


def answers_for(mode: Mode, checkpoint: Path | None, measured: Path | None = None) -> Answers:
    """Who answers in this mode; the network, and torch with it, is loaded only where it is used.

    Raises:
        InputError: the checkpoint or the table of measured ops cannot be used.
    """
    found = _model_for(mode, checkpoint)
    if measured is None:
        return found
    table = read_measured(measured, AnalyticPredictor())
    return replace(found, predictor=SimilarPredictor(table, found.predictor))


def _model_for(mode: Mode, checkpoint: Path | None) -> Answers:
    if checkpoint is None:
        return Answers(AnalyticPredictor())
    from gnnperf.gnn.checkpoint import Checkpoint
    from gnnperf.gnn.checkpoint_formats import read_checkpoint
    from gnnperf.predict.blended import predictor_of
    from gnnperf.predict.intervals import WithIntervals

    loaded = read_checkpoint(checkpoint)
    if not isinstance(loaded, Checkpoint):
        return Answers(loaded.predictor(mode), checkpoint_sha256=loaded.sha256)
    found = Answers(
        predictor_of(loaded, mode), None, calibrated_on(loaded.provenance), learned_beside(loaded.provenance),
        loaded.sha256, learned_hosts=True,
    )  # fmt: skip
    if loaded.intervals is None:
        return found
    # What the network does not answer makes a lower bound in mode=gnn; where it answers all, the modes agree.
    steps = loaded.intervals.steps.get(str(Mode.hybrid if mode is Mode.gnn else mode))
    return replace(found, predictor=WithIntervals(found.predictor, loaded.intervals.nodes), steps=steps)
