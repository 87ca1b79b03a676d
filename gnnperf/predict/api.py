"""predict(): from a trace or a plan to the answer about one of its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.analytic import AnalyticPredictor, has_forms, node_bounds
from gnnperf.core import NodeType, Source, task
from gnnperf.generate import build_graph_of, misplaced
from gnnperf.gnn import DeviceIntervals, Processor, StepIntervals, as_processor, processors_of, shipped_device_intervals
from gnnperf.graph import ExecutionGraph, Prediction, Predictor, StepLabel, load_graph
from gnnperf.hardware import ClusterSpec, with_bucket
from gnnperf.predict.advice import with_findings
from gnnperf.predict.assembly import Question, assemble, choose_step, collect, other_step, step_time_kind
from gnnperf.predict.edited import with_edits
from gnnperf.predict.intervals import with_interval
from gnnperf.predict.jitter import requested_jitter
from gnnperf.predict.measured import MeasuredPredictor, read_measured
from gnnperf.predict.predictors import Bounds, Predictors
from gnnperf.predict.provenance import provenance
from gnnperf.predict.rank_memory import with_memory
from gnnperf.predict.replay import as_prediction, caveats, check_evidence, replayed_step_time_us
from gnnperf.predict.request import Mode, Request, Stalls, TraceEvidence, check
from gnnperf.predict.similar import SimilarPredictor
from gnnperf.predict.step_prediction import StepPrediction
from gnnperf.predict.target import Target, choose_target, collective_models_text, traced_device, traced_name
from gnnperf.predict.trace_evidence import TracePredictor
from gnnperf.schedule import MeasuredStep, forecast_step, measured_step, replay_step

# Another processor than intervals were calibrated on: all CPUs are taken for the generic one, nothing else says it.

OTHER = (
    "The trace ran on {ours}, the checkpoint's errors were measured on {theirs}: what another processor changes it "
    "does not know, so there is no interval. Eight or more runs of yours can train it on (experiment=fine_tune)."
)


@dataclass(frozen=True)
class NoBounds:
    """Removes intervals that were calibrated on other processors.

    Attributes:
        reason: the warning that goes with every prediction.
    """

    reason: str

    def __call__(self, prediction: Prediction, cluster: ClusterSpec) -> Prediction:
        """The prediction without bounds on any node."""
        unknown = np.full_like(prediction.latency_us, np.nan)  # [num_nodes]
        warnings = (*prediction.warnings, self.reason)
        return replace(prediction, latency_low_us=unknown, latency_high_us=unknown, warnings=warnings)


def calibrated_on(provenance: Mapping[str, Any]) -> tuple[Processor, ...]:
    """The processors of a checkpoint's validation runs; () unknown, as of checkpoints made before they were kept."""
    training = provenance.get("training")
    named = training.get("processors") if isinstance(training, Mapping) else None
    retained = named if isinstance(named, (list, tuple)) else ()
    results = [
        as_processor(one if isinstance(one, Mapping) else {"name": one}) for one in retained
    ]  # a name by itself: an older one
    return tuple(one for one in results if one is not None)


def other_processor(trace: Path | None, theirs: Sequence[Processor]) -> str:
    """What to say where the trace's card names processors and no validation run ran on one of them; else "".

    Args:
        trace: what is requested; None: a plan.
        theirs: of the validation runs; () unknown.

    Raises:
        InputError: the trace's card cannot be read.
    """
    ours = processors_of([trace]) if trace is not None and theirs else ()
    if not ours or any(one.may_be(other) for one in ours for other in theirs):
        return ""
    return OTHER.format(ours=", ".join(map(str, ours)), theirs=", ".join(map(str, theirs)))


# Bounds of kernels on a GPU without calibration: what answers missed on generations that were left out.

MODELS = (Source.ANALYTIC, Source.GNN, Source.GNN_CALIBRATED)  # what was measured or declared was not left out
SAID = (
    "No answer was calibrated on {device}: intervals ({level:.0%}) of {given:,} of {every:,} kernels follow from what "
    "answers missed on {count} GPU generations that were left out one by one; all else has none."
)


@dataclass(frozen=True)
class UnseenDeviceBounds:
    """Intervals of kernels on GPUs that no checkpoint was calibrated on.

    Attributes:
        intervals: errors on GPU generations that were left out; None: those that ship, read when they are needed.
    """

    intervals: DeviceIntervals | None = None

    def __call__(self, prediction: Prediction, cluster: ClusterSpec) -> Prediction:
        """Bounds for kernels that have none, and a sentence that names their origin."""
        kernels = (prediction.graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()  # [num_nodes]
        requested = np.flatnonzero(kernels & np.isnan(prediction.latency_low_us) & np.isin(prediction.source, MODELS))
        if not has_forms(cluster.device) or not len(requested):
            return prediction
        intervals = self.intervals or shipped_device_intervals()
        nodes = prediction.graph.nodes.iloc[requested]
        family, dtype = (nodes[name].astype(object).to_numpy() for name in ("family", "dtype"))
        bounds = intervals.bounds_us(family, dtype, prediction.latency_us[requested])
        low_us, high_us = prediction.latency_low_us.copy(), prediction.latency_high_us.copy()
        low_us[requested], high_us[requested] = bounds
        given = int(np.isfinite(bounds[0]).sum())
        sentences = SAID.format(device=cluster.device.name, given=given, every=int(kernels.sum()),
                           count=len(intervals.generations), level=intervals.level)  # fmt: skip
        warnings = (*prediction.warnings, sentences) if given else prediction.warnings
        return replace(prediction, latency_low_us=low_us, latency_high_us=high_us, warnings=warnings)


# A checkpoint that learned of links next to their token buckets, requested a link whose bucket nothing tells.

UNTOLD = (
    "The checkpoint's training was told of token buckets of {size:g} bytes on limited links (data.bucket_bytes), and "
    "this trace's card names a rate and no bucket: its transfers are told as if none of them passed at once. "
    "bucket_bytes={size:g} tells it."
)


def trained_bucket_bytes(provenance: Mapping[str, Any]) -> float | None:
    """What training was given of buckets (`data.bucket_bytes`); None: nothing, or made before this was kept."""
    training = provenance.get("training")
    given = training.get("bucket_bytes") if isinstance(training, Mapping) else None
    return float(given) if isinstance(given, int | float) else None


def untold(graph: ExecutionGraph, learned_bytes: float | None, follows_card: bool) -> tuple[str, ...]:
    """What to say where the network learned of buckets, and the trace's limited links are given without.

    Args:
        graph: of the trace.
        learned_bytes: learned_beside of the checkpoint.
        follows_card: whether links are predicted as the trace's card says.
    """
    placement = graph.placement
    if learned_bytes is None or placement is None or not follows_card:
        return ()
    missed = placement.is_limited and placement.bucket_bytes is None
    return (UNTOLD.format(size=learned_bytes),) if missed else ()


NO_CHECKPOINT = "No checkpoint was given (checkpoint=FILE): latencies come from the analytical model."
COPY = (
    "The step time is rebuilt from the step's own measured latencies: it checks the graph and is no forecast "
    "(evidence=other_steps forecasts, evidence=none predicts blind)."
)
FORECAST = "The step time is a forecast from the measured latencies of step {}."
STALLS = "{stalls} {ms:.1f} ms in this step, as measured (stalls=remove predicts without them)."


def predict(request: Request) -> StepPrediction:
    """Answer for one step of a trace.

    Raises:
        InputError: the request contradicts itself, or trace, hardware or checkpoint cannot be used.
    """
    check(request)
    graph = requested_graph(request)
    answer = replayed(graph, request) if request.mode is Mode.replay else predicted(graph, request)
    return answer if request.memory is None else with_memory(answer, request, request.memory)


def requested_graph(request: Request) -> ExecutionGraph:
    """The graph of the trace, or of the plan."""
    if request.trace is not None:
        graph = load_graph(request.trace, request.cache_dir)
        return replace(graph, placement=with_bucket(graph.placement, request.bucket_bytes))
    assert request.plan is not None, "checked"
    return build_graph_of(request.plan)


def predicted(graph: ExecutionGraph, request: Request) -> StepPrediction:
    """The answer of a model for one step of `graph`."""
    label = choose_step(graph, request.step)
    target = choose_target(graph, request.hardware, request.cluster).with_collective_models(request.collectives)
    with task("predicting latencies", 2, "parts") as advance:  # loading the checkpoint is the first
        answers = answers_for(request.mode, request.checkpoint, request.measured)
        measured = _measured(graph, label, request, target)
        external = "" if request.hardware else other_processor(request.trace, answers.processors)
        predictors = _with_trace(answers, measured, graph, request, target, external)
        advance(1.0)
        step = graph.step(label.step).for_predictors() if measured is None else measured.graph
        prediction = predictors.predict(step, target.cluster)
    question = Question(
        label=label,
        structure_step=label.step if measured is None else measured.graph.steps[0].step,
        mode=request.mode,
        hardware=target.cluster.device.name,
        cluster=target.cluster.name,
        traced_hardware=traced_name(graph),
        same_hardware=target.same_hardware,
        provenance=provenance(
            request.trace,
            answers.checkpoint_sha256,
            graph.fingerprint,
            collective_models_text(target.cluster),
            request.measured,
            _evidence_name(measured),
        ),
        warnings=(
            *_without_checkpoint(request, measured),
            *_of_trace(measured, target),
            *untold(graph, answers.bucket_bytes, request.cluster is None),
            *target.warnings,
            *_misplaced(request, target),
        ),
        jitter=requested_jitter(request.jitter, graph),
        device=target.cluster.device,
        traced_device=target.traced,
    )
    with task("putting the step together", 3, "parts") as advance:
        answer = assemble(prediction, question)
        advance(1.0)
        if not external:
            answer = with_interval(answer, answers.steps if measured is None else None, measured is not None)
        advance(1.0)
        answer = replace(answer, bound=node_bounds(prediction.graph, target.cluster.device))
    if not target.same_hardware:
        answer = replace(answer, traced_prediction_us=_traced_prediction_us(predictors, step, question))
    if request.findings:
        answer = with_findings(answer, question, predictors, target.cluster)
    if not request.whatif:
        return answer

    def cluster_of(edited: ExecutionGraph) -> ClusterSpec:
        return (
            choose_target(edited, request.hardware, request.cluster).with_collective_models(request.collectives).cluster
        )

    return with_edits(answer, request.whatif, predictors, target.cluster, question, request.collectives, cluster_of)


def _measured(graph: ExecutionGraph, label: StepLabel, request: Request, target: Target) -> MeasuredStep | None:
    """Measurements of the trace to start from; None: a blind prediction."""
    differ = request.evidence is TraceEvidence.auto and request.jitter is not None
    if differ or request.evidence is TraceEvidence.none:
        return None
    if request.mode is not Mode.hybrid or request.plan is not None or math.isnan(label.makespan_us):
        return None
    if target.traced is None:  # no ratio of two devices without the first one
        return None
    step = forecast_step if request.evidence is TraceEvidence.other_steps else measured_step
    measured = step(graph, label)
    return measured.without_stalls() if request.stalls is Stalls.remove else measured


def _with_trace(
    answers: Answers,
    measured: MeasuredStep | None,
    graph: ExecutionGraph,
    request: Request,
    target: Target,
    external: str,
) -> Predictors:
    """The fallback order with the measurements of the trace behind the user's op table."""
    order: tuple[Predictor, ...] = (*answers.tables, answers.model)
    if measured is not None:
        own = target.same_hardware and request.cluster is None
        traced = target.cluster if own else choose_target(graph, None, None).cluster
        order = (*answers.tables, TracePredictor(measured, traced, answers.model), answers.model)
    elif answers.table is not None:
        order = (SimilarPredictor(answers.table, answers.model),)  # rows correct similar calls of the model
    removed: tuple[Bounds, ...] = (NoBounds(external),) if external else ()
    bounds: tuple[Bounds, ...] = (*answers.bounds, UnseenDeviceBounds(), *removed)
    return Predictors(order, bounds)


def _traced_prediction_us(predictors: Predictors, step: ExecutionGraph, question: Question) -> float | None:
    """The step time for the traced hardware, predicted the same way; None for a blind prediction."""
    prediction = predictors.on_traced_cluster(step)
    return None if prediction is None else assemble(prediction, question).step_time_us


def _evidence_name(measured: MeasuredStep | None) -> str:
    if measured is None:
        return str(TraceEvidence.none)
    return str(TraceEvidence.other_steps if measured.from_other_steps else TraceEvidence.trace)


def _without_checkpoint(request: Request, measured: MeasuredStep | None) -> tuple[str, ...]:
    needs = request.mode is Mode.hybrid and request.checkpoint is None and measured is None
    return (NO_CHECKPOINT,) if needs else ()


def _of_trace(measured: MeasuredStep | None, target: Target) -> tuple[str, ...]:
    """What the step time is made of, and the stalls in it."""
    if measured is None:
        return ()
    stalls_us = measured.stalls_us
    count = int((stalls_us > 0).sum())
    named = f"{count} stall{' takes' if count == 1 else 's take'}"
    stalls = (STALLS.format(stalls=named, ms=stalls_us.sum() / 1e3),) if count else ()
    if not target.same_hardware:
        return stalls
    made_of = FORECAST.format(measured.graph.steps[0].step) if measured.from_other_steps else COPY
    return (made_of, *stalls)


def _misplaced(request: Request, target: Target) -> tuple[str, ...]:
    return () if request.plan is None else misplaced(request.plan, target.cluster.ranks_per_node)


def replayed(graph: ExecutionGraph, request: Request) -> StepPrediction:
    """The answer of the trace itself: the structure of a neighboring step, compared with the step requested."""
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
    """The predictors that a request names, and what is known of them.

    Attributes:
        model: the network, the blend, or the analytical model.
        table: op table of the user; None: none.
        bounds: intervals of nodes that come with the model.
        steps: intervals of step times; None: unknown.
        processors: of the validation runs; () unknown.
        bucket_bytes: of the token buckets that training knew; None: of none.
        checkpoint_sha256: of the checkpoint; None: there is none.
    """

    model: Predictor
    table: MeasuredPredictor | None = None
    bounds: tuple[Bounds, ...] = ()
    steps: StepIntervals | None = None
    processors: tuple[Processor, ...] = ()
    bucket_bytes: float | None = None
    checkpoint_sha256: str | None = None

    @property
    def tables(self) -> tuple[Predictor, ...]:
        """The op table as the first part of a fallback order."""
        return () if self.table is None else (self.table,)


def answers_for(mode: Mode, checkpoint: Path | None, measured: Path | None = None) -> Answers:
    """The predictors of a mode; the network, and torch with it, is loaded only where it is used.

    Raises:
        InputError: the checkpoint or the table of measured ops cannot be used.
    """
    answers = _model_for(mode, checkpoint)
    return answers if measured is None else replace(answers, table=read_measured(measured, AnalyticPredictor()))


def _model_for(mode: Mode, checkpoint: Path | None) -> Answers:
    if checkpoint is None:
        return Answers(AnalyticPredictor())
    from gnnperf.gnn import Checkpoint, read_checkpoint
    from gnnperf.predict.blended import predictor_of
    from gnnperf.predict.intervals import CalibratedBounds

    loaded = read_checkpoint(checkpoint)
    if not isinstance(loaded, Checkpoint):
        return Answers(loaded.predictor(mode), checkpoint_sha256=loaded.sha256)
    answers = Answers(
        predictor_of(loaded, mode),
        processors=calibrated_on(loaded.provenance),
        bucket_bytes=trained_bucket_bytes(loaded.provenance),
        checkpoint_sha256=loaded.sha256,
    )
    if loaded.intervals is None:
        return answers
    # What the network does not answer makes a lower bound in mode=gnn; where it answers all, the modes agree.
    steps = loaded.intervals.steps.get(str(Mode.hybrid if mode is Mode.gnn else mode))
    return replace(answers, bounds=(CalibratedBounds(loaded.intervals.nodes),), steps=steps)
