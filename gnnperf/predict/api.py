"""predict(): trace or plan -> graph -> latencies -> schedule -> the prediction about one step."""

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnperf.analytic import AnalyticPredictor, node_bounds
from gnnperf.core import InputError, each, task
from gnnperf.graph import ExecutionGraph, Prediction, Predictor, StepLabel, free_run, load_graph
from gnnperf.hardware import ClusterSpec
from gnnperf.predict import intervals
from gnnperf.predict.advice import with_findings
from gnnperf.predict.assembly import Question, assemble, choose_step, step_time_kind, time_us
from gnnperf.predict.predictors import Bounds, Once, Predictors
from gnnperf.predict.profiler import (
    RecordedProfiler,
    calibrated,
    from_cost,
    from_removed,
    recorded_profiler,
    with_profiler_removed,
)
from gnnperf.predict.request import Mode, Profiler, Request, Stalls, TraceEvidence, check
from gnnperf.predict.step_prediction import (
    TRANSFER,
    StepPrediction,
    TraceMeasurements,
    evidence_name,
    provenance,
    trace_notes,
)
from gnnperf.predict.step_rates import with_throughput
from gnnperf.predict.target import Target, choose_target, collective_models_text, num_nodes, placement_text, traced_name
from gnnperf.predict.trace_evidence import TracePredictor
from gnnperf.schedule import MeasuredStep, forecast_step, measured_step, step_us

if TYPE_CHECKING:
    from gnnperf.gnn import Checkpoint, Processor, StepIntervals, Trust
    from gnnperf.predict.measured import MeasuredPredictor
    from gnnperf.predict.replay import Replay

NO_CHECKPOINT = "No checkpoint was given (checkpoint=FILE): latencies come from the analytical model."
TRANSFERRED = (
    "The step is predicted for the machine that the transfer checkpoint was trained on, from the measurements of this "
    "trace."
)
DRAWN = (
    "Drawn steps: the step is the one with the median work of {} drawn ones. The 10th, 50th and 90th percentiles of "
    "their times are {:.4g}, {:.4g} and {:.4g} ms."
)
QUANTILES, DRAWN_LEVEL = (0.1, 0.5, 0.9), 0.8
MOVED = "The ranks are predicted on {}, traced on {}: the unedited step differs from the measured one, too."


def predict(request: Request) -> StepPrediction:
    """Predict one step of a trace or of a plan.

    Raises:
        InputError: the request contradicts itself, or trace, hardware or checkpoint cannot be used.
    """
    check(request)
    return predicted(requested_graph(request), request)


def requested_graph(request: Request, meanwhile: ExitStack | None = None) -> ExecutionGraph:
    """The graph of the trace, or of the plan; until `meanwhile` ends, a large one may be put into the cache."""
    plan = request.plan_spec()
    if plan is not None:
        from gnnperf.generate import build_graph_of

        return build_graph_of(plan)
    assert request.trace is not None, "checked"
    graph = load_graph(Path(request.trace), request.cache_folder, request.recording, request.chosen, meanwhile)
    if not request.memory:  # nothing else needs its events
        free_run()
    return graph


def predicted(graph: ExecutionGraph, request: Request) -> StepPrediction:
    """Latencies, schedule and everything else that is requested of one step of `graph`."""
    setup = setup_of(graph, request)
    return with_alternatives(setup.step_prediction(setup.predict()), setup)


def setup_of(graph: ExecutionGraph, request: Request) -> "Setup | Replay":
    """What the prediction of one step needs."""
    if request.mode is Mode.replay:
        from gnnperf.predict.replay import Replay

        return Replay(graph, request)
    return Setup(graph, request, models_for(request.mode, request.checkpoint, request.measured, request.transfer))


@dataclass(frozen=True)
class Models:
    """The models that a request names, and what is known of them."""

    model: Predictor  # the network, the blend, or the analytical model
    table: "MeasuredPredictor | None" = None  # op table of the user; None: none
    bounds: tuple[Bounds, ...] = ()  # intervals of nodes that come with the model
    steps: "StepIntervals | None" = None  # intervals of step times; None: unknown
    unseen_steps: "StepIntervals | None" = None  # the same of programs that training lacks
    trust: "Trust | None" = None  # the training's programs; None: there are no intervals
    processors: "tuple[Processor, ...]" = ()  # of the validation runs; () unknown
    checkpoint_sha256: str | None = None  # of the checkpoint; None: there is none
    # the checkpoint that corrects measurements of another machine; None: there is none
    transfer: "Checkpoint | None" = None


def models_for(
    mode: Mode, checkpoint: Path | str | None, measured: Path | str | None = None, transfer: Path | str | None = None
) -> Models:
    """The models of a mode; the network, and torch with it, is loaded only where it is used."""
    models = _models_of(mode, checkpoint)
    if measured is not None:
        from gnnperf.predict.measured import read_measured

        models = replace(models, table=read_measured(Path(measured), AnalyticPredictor()))
    if transfer is not None:
        from gnnperf.gnn import load_checkpoint

        loaded = load_checkpoint(Path(transfer))
        models = replace(models, transfer=loaded, checkpoint_sha256=loaded.sha256)
    return models


def _models_of(mode: Mode, checkpoint: Path | str | None) -> Models:
    if checkpoint is None:
        return Models(AnalyticPredictor())
    from gnnperf.gnn import load_checkpoint
    from gnnperf.predict.gnn import predictor_of
    from gnnperf.predict.intervals import with_calibrated_bounds

    loaded = load_checkpoint(Path(checkpoint))
    if loaded.speed_factors is not None:
        raise InputError("the checkpoint corrects measurements of another machine and predicts nothing without them",
                         where="checkpoint", remedy="pass it as transfer=")  # fmt: skip
    models = Models(
        predictor_of(loaded, mode),
        processors=intervals.calibrated_on(loaded.provenance),
        checkpoint_sha256=loaded.sha256,
    )
    if loaded.intervals is None:
        return models
    # What the network does not cover makes a lower bound in mode=gnn; where it covers all of a program of the training,
    # the modes agree.
    steps = loaded.intervals.steps.get(str(Mode.hybrid if mode is Mode.gnn else mode))
    bounds = (partial(with_calibrated_bounds, intervals=loaded.intervals.nodes),)
    unseen = loaded.intervals.unseen_steps
    return replace(models, bounds=bounds, steps=steps, unseen_steps=unseen, trust=loaded.trust)


@dataclass(frozen=True)
class Setup:
    """What a prediction of one step needs: the step, the hardware, and the predictors in their fallback order."""

    graph: ExecutionGraph  # of the trace or plan
    request: Request  # what is requested of it
    models: Models  # that the request names

    @cached_property
    def label(self) -> StepLabel:
        """The step that is predicted."""
        return choose_step(self.graph, self.request.step)

    @cached_property
    def target(self) -> Target:
        """The hardware to predict for."""
        return self._target_of(self.graph)

    def _target_of(self, graph: ExecutionGraph) -> Target:
        request = self.request
        target = choose_target(graph, request.device_spec(), request.cluster_spec(), self._starts_from_trace)
        return target.with_collective_models(request.collectives)

    @cached_property
    def traced(self) -> ClusterSpec:
        """The cluster that the trace ran on; of a plan, and of unknown devices, the one predicted for."""
        if self.target.traced is None or not (self.request.cluster or not self.target.same_hardware):
            return self.target.cluster
        own = choose_target(self.graph, None, None, self._starts_from_trace)
        return own.with_collective_models(self.request.collectives).cluster

    @cached_property
    def same_hardware(self) -> bool:
        """Whether the measured step is one of the hardware predicted for."""
        return self.request.transfer is None and self.target.same_hardware and self.target.cluster == self.traced

    @cached_property
    def _source(self) -> MeasuredStep | None:
        """Measurements of the trace to start from, with their stalls; None: a blind prediction."""
        request, label = self.request, self.label
        if not self._ran and request.evidence in (TraceEvidence.trace, TraceEvidence.other_steps):
            raise InputError("the step was captured, not run: it has no measurements", where="evidence",
                             allowed="evidence=none")  # fmt: skip
        if not self._starts_from_trace or self.target.traced is None:  # no ratio of devices without the first one
            return None
        step = forecast_step if request.evidence is TraceEvidence.other_steps else measured_step
        return step(self.graph, label)

    @cached_property
    def measured(self) -> MeasuredStep | None:
        """Measurements of the trace to start from; None: a blind prediction."""
        source, request = self._source, self.request
        if source is None:
            return None
        if request.stalls is Stalls.remove:
            source = source.without_stalls()
        return source if request.profiler is Profiler.keep else source.without_profiler(self._removed.cost)

    @cached_property
    def _profiler(self) -> RecordedProfiler:
        """Of the trace."""
        on_gpu = self.target.traced is not None and self.target.traced.kind == "gpu"
        return recorded_profiler(self.request.trace, on_gpu)

    @cached_property
    def _removed(self) -> RecordedProfiler:
        """The profiler that `profiler=remove` takes out: at the cost that leads to the step timed without it."""
        kept = replace(self, request=replace(self.request, profiler=Profiler.keep, hardware=None, cluster=None))
        measured = kept.measured
        assert measured is not None, "profiler=remove without a measured step"
        recorded = assemble(kept.predict(), kept.question)
        return calibrated(self._profiler, lambda cost: from_cost(recorded, measured, kept.question, cost))

    @property
    def _starts_from_trace(self) -> bool:
        request = self.request
        blind = request.evidence is TraceEvidence.none or request.mode is not Mode.hybrid or request.transfer
        return not blind and self._ran

    @property
    def _ran(self) -> bool:
        """Whether the step was measured; those of plans and captured programs were not."""
        return not math.isnan(self.label.makespan_us)

    @cached_property
    def step(self) -> ExecutionGraph:
        """The graph that predictors receive."""
        return self.graph.step(self.label.step).for_predictors() if self.measured is None else self.measured.graph

    @cached_property
    def _is_unseen(self) -> bool:
        """Whether the checkpoint's training lacks the program."""
        return self.models.trust is not None and not self.models.trust.has_program(self.step.nodes)

    @cached_property
    def without_intervals(self) -> str:
        """Why intervals of the checkpoint do not hold for this program, or for this trace's processor; "" they do."""
        if self._is_unseen and self.request.mode is not Mode.hybrid:
            return intervals.OF_TRAINING
        if self.request.hardware or self.request.trace is None:
            return ""
        return intervals.other_processor(Path(self.request.trace), self.models.processors)

    @cached_property
    def predictors(self) -> Predictors:
        """The fallback order: op table, measurements of the trace, model."""
        models, model = self.models, Once(self.models.model)
        tables = () if models.table is None else (models.table,)
        order: tuple[Predictor, ...] = (*tables, model)
        if self.measured is not None:
            trace = TracePredictor(self.measured, self.traced, model)
            if models.table is not None:
                from gnnperf.predict.similar import corrected

                trace = replace(trace, correct=partial(corrected, models.table))
            order = (*tables, trace, model)
        elif models.transfer is not None:
            from gnnperf.predict.transfer import transfer_of

            order = (*tables, transfer_of(models.transfer, self.graph, self.step, self.traced))
        elif models.table is not None:
            from gnnperf.predict.similar import SimilarPredictor

            order = (SimilarPredictor(models.table, model),)  # rows correct similar calls of the model
        bounds: tuple[Bounds, ...] = (*models.bounds, intervals.with_unseen_device_bounds)
        if self.without_intervals:
            bounds = (*bounds, lambda prediction, _: intervals.without_bounds(prediction, self.without_intervals))
        return Predictors(order, bounds)

    @cached_property
    def question(self) -> Question:
        """What is requested, and of what."""
        return replace(self._unscaled, step_scale=self._missed())

    def _missed(self) -> float:
        """Measured over scheduled time of the step that a forecast starts from.

        A schedule leaves out what no constraint explains; the step to forecast has that share of time as well.
        """
        source = self._source
        if source is None or not source.from_other_steps:
            return 1.0
        label, model = source.graph.steps[0], Once(self.models.model)
        rebuilt = Predictors((TracePredictor(source, self.traced, model), model)).predict(source.graph, self.traced)
        scheduled_us = time_us(rebuilt, self._unscaled)
        alike = step_time_kind(label) is step_time_kind(self.label) and scheduled_us > 0
        return step_us(label) / scheduled_us if alike else 1.0

    @cached_property
    def _unscaled(self) -> Question:
        request, target, measured = self.request, self.target, self.measured
        return Question(
            label=self.label,
            structure_step=self.label.step if measured is None else measured.graph.steps[0].step,
            mode=request.mode,
            hardware=target.cluster.device.name,
            cluster=target.cluster.name,
            traced_hardware=traced_name(self.graph),
            same_hardware=self.same_hardware,
            provenance=provenance(
                request,
                self.graph.fingerprint,
                checkpoint_sha256=self.models.checkpoint_sha256,
                collectives=collective_models_text(target.cluster),
                evidence=evidence_name(measured) if request.transfer is None else TRANSFER,
            ),
            warnings=(*self._moved(), *target.warnings, *self._misplaced()),
            notes=(*self._notes(), *target.notes),
            placement=placement_text(target.cluster, self.graph.world_size),
            from_trace=measured is not None,
            device=target.cluster.device,
            traced_device=target.traced,
        )

    def _notes(self) -> tuple[str, ...]:
        request, measured = self.request, self.measured
        if request.transfer is not None:
            return (TRANSFERRED,)
        no_model = request.mode is Mode.hybrid and request.checkpoint is None and measured is None
        return (*((NO_CHECKPOINT,) if no_model else ()), *trace_notes(measured, self.same_hardware, request.profiler))

    def _moved(self) -> tuple[str, ...]:
        """Another placement of the ranks than the traced one changes the step without any edit."""
        world_size = self.graph.world_size
        if self.request.plan or num_nodes(self.target.cluster, world_size) == num_nodes(self.traced, world_size):
            return ()
        return (MOVED.format(*(placement_text(one, world_size) for one in (self.target.cluster, self.traced))),)

    def _misplaced(self) -> tuple[str, ...]:
        plan = self.request.plan_spec()
        if plan is None:
            return ()
        from gnnperf.generate import TransformerPlan, misplaced_groups

        if not isinstance(plan, TransformerPlan):
            return ()
        return misplaced_groups(plan, self.target.cluster.ranks_per_node)

    def predict(self) -> Prediction:
        """Latency of every node of the step."""
        with task("predicting latencies", 1, "parts"):
            return self.predictors.predict(self.step, self.target.cluster)

    def step_prediction(self, prediction: Prediction) -> StepPrediction:
        """The step without edits (`unedited`), and with edits, throughput and memory."""
        result = with_throughput(self._with_edits(self.unedited(prediction)), self.request)
        if not self.request.memory:
            return result
        from gnnperf.predict.rank_memory import with_memory

        return with_memory(result, self.request)

    def unedited(self, prediction: Prediction) -> StepPrediction:
        """Schedule the latencies; add interval, comparison and findings."""
        request, question = self.request, self.question
        with task("putting the step together", 2, "parts") as advance:
            result = assemble(prediction, question)
            advance(1.0)
            result = replace(result, bound=node_bounds(prediction.graph, self.target.cluster.device),
                             measurements=TraceMeasurements(self.graph) if self._ran else None)  # fmt: skip
            result = self._with_profiler_removed(self._with_intervals(result))
        return with_findings(result, question, self.predictors, self.target.cluster) if request.findings else result

    def _with_intervals(self, result: StepPrediction) -> StepPrediction:
        """From the checkpoint; of predictions that start from the trace, from steps of other runs and other GPUs."""
        drawn_us = self._drawn_us()
        if len(drawn_us):
            quantiles_us = np.quantile(drawn_us, QUANTILES).tolist()
            note = DRAWN.format(len(drawn_us), *(us / 1e3 for us in quantiles_us))
            return replace(result, step_time_interval_us=(quantiles_us[0], quantiles_us[2]), interval_level=DRAWN_LEVEL,
                           notes=(note, *result.notes))  # fmt: skip
        if self.measured is None:
            if self.without_intervals:
                return result
            if self._is_unseen:
                return intervals.with_interval(result, self.models.unseen_steps, intervals.OTHER_PROGRAM)
            return intervals.with_interval(result, self.models.steps)
        if self.same_hardware:
            removed = self.request.profiler is Profiler.remove  # no interval was calibrated for it
            return result if removed else intervals.with_trace_interval(result)
        own = self.predictors.on_traced_cluster(self.step)
        assert own is not None, "it starts from the trace"
        own_us = time_us(own, self.question)
        moved = replace(result, traced_prediction_us=own_us)
        return intervals.with_ratio_interval(moved, own, self.traced, self.target.cluster, self.question)

    def _with_profiler_removed(self, result: StepPrediction) -> StepPrediction:
        measured, request = self.measured, self.request
        if measured is None or not self.same_hardware:
            return result
        if request.profiler is Profiler.remove:
            return from_removed(result, self._removed)
        try:
            profiler = self._profiler
        except InputError as error:  # one more line is no reason to refuse
            return replace(result, warnings=(*result.warnings, f"The step without the profiler is unknown: {error}"))
        return with_profiler_removed(result, measured, self.question, profiler)

    def _drawn_us(self) -> np.ndarray:
        """[num_draws] step times of a plan whose steps differ; [0] of other plans and of traces."""
        plan = self.request.plan_spec()
        if plan is None:
            return np.zeros(0)
        from gnnperf.generate import drawn_graphs

        steps = [graph.step(self.label.step).for_predictors() for graph in drawn_graphs(plan)]
        given = (self.predictors.predict(one, self.target.cluster) for one in each(steps, "predicting", "drawn steps"))
        return np.array([time_us(one, self.question) for one in given])

    def _with_edits(self, result: StepPrediction) -> StepPrediction:
        request = self.request
        if not request.whatif:
            return result
        from gnnperf.predict.edited import with_edits

        return with_edits(result, request.edits(), self.predictors, self.target.cluster, self.question,
                          request.collectives, lambda edited: self._target_of(edited).cluster)  # fmt: skip


def with_alternatives(result: StepPrediction, setup: "Setup | Replay") -> StepPrediction:
    """The prediction with the step on every device that is requested; the models and the trace are read once."""
    rows = []
    for request in setup.request.every_hardware():
        other = Setup(setup.graph, request, setup.models) if isinstance(setup, Setup) else setup
        same = request.hardware == setup.request.hardware
        rows.append(result if same else other.step_prediction(other.predict()))
    return replace(result, alternatives=tuple(rows))
