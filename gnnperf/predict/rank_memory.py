"""Peak memory of the ranks whose step is predicted, next to what their recorder counted and what the device holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnnperf.core import MANY_ROWS, NodeType, copyable_cores, in_copy
from gnnperf.graph import ExecutionGraph, free_run, load_run, load_step
from gnnperf.hardware import DeviceSpec
from gnnperf.predict.assembly import choose_step
from gnnperf.predict.request import Mode, Request
from gnnperf.predict.step_prediction import RankMemory, StepPrediction
from gnnperf.predict.target import GENERIC_GPU, choose_target
from gnnperf.trace import RunTrace, run_card

if TYPE_CHECKING:
    from gnnperf.generate import Plan, RankTensors
    from gnnperf.memory import PeakMemory, Variant
    from gnnperf.whatif import Edit

NO_SHAPES = "Peak memory is unknown: the trace has no shapes of arguments (record_shapes=True)."
NO_EDITS_OF_PLANS = "What if: not known is peak memory of a plan with {}; set keys of the plan instead"
OTHER_SHAPES = "Steps of the trace differ in shapes; the measured peak memory is that of a later step."
OTHER_DEVICE = (
    "Peak memory is that of the traced ops with the allocator of {}; another device may run other ops and libraries."
)
Peaks = tuple["PeakMemory", ...] | None  # of the traced ranks; None: the trace has no shapes
_AHEAD: ContextVar[Callable[[], Peaks] | None] = ContextVar("ahead", default=None)  # waits for what a copy computes


@contextmanager
def memory_ahead(graph: ExecutionGraph, request: Request) -> Iterator[None]:
    """During the block, a copy of this process loads torch and finds the peak memory of a trace on its own hardware.

    Then this process frees all events, but for those of the step where edits may need them. No copy is made where torch
    was loaded, because its threads of OpenMP would not be in the copy, or where it would read a large trace, whose
    graph is in memory.
    """
    if not (request.trace and request.memory):
        yield
        return
    step, is_read = choose_step(graph, request.step).name, bool(load_run.cache_info().currsize)
    is_safe = "torch" not in sys.modules and copyable_cores() > 1 and (is_read or graph.num_nodes < MANY_ROWS)
    is_ahead = is_safe and request.mode is not Mode.replay and not request.hardware
    if is_read and (request.whatif or not is_ahead):
        _run(graph.fingerprint, step, request)
    if not is_ahead:
        yield
        return
    with in_copy(lambda: _peaks_ahead(graph.fingerprint, step, request)) as ahead:
        free_run()
        token = _AHEAD.set(ahead)
        try:
            yield
        finally:
            _AHEAD.reset(token)


def with_memory(estimate: StepPrediction, request: Request) -> StepPrediction:
    """The prediction with the peak memory of each rank in the graph, and with that of the edited step."""
    graph, device = estimate.prediction.graph, None
    if request.mode is not Mode.replay:
        target = choose_target(graph, request.device_spec(), request.cluster_spec(), from_trace=True)
        device = target.cluster.device
    if request.plan:
        return _planned(estimate, request, device)
    result = _traced(estimate, request, device)
    load_run.cache_clear()
    load_step.cache_clear()
    return result


def _capacity(device: DeviceSpec | None) -> float | None:
    """Bytes that tensors can have; None: not a GPU, whose memory is a rank's own, or one that the catalog lacks."""
    known = device is not None and device.kind == "gpu" and device.name != GENERIC_GPU
    return device.memory_bytes if device is not None and known else None


def _planned(estimate: StepPrediction, request: Request, device: DeviceSpec | None) -> StepPrediction:
    from gnnperf.generate import rank_tensors

    plan = request.plan_spec()
    assert plan is not None, "chosen so"
    peaks = tuple(RankMemory(_peak(tensors, estimate), None, _capacity(device)) for tensors in rank_tensors(plan))
    given = replace(estimate, peak_memory=peaks)
    if given.whatif is None:
        return given
    from gnnperf.memory import planned_peak
    from gnnperf.whatif import ChangeDevice

    edited, edits = given.whatif.prediction, request.edits()
    after = _edited_plan(plan, edits)
    if after is None:
        note = NO_EDITS_OF_PLANS.format(", ".join(type(edit).__name__ for edit in edits))
        return replace(given, notes=(note, *given.notes))
    device = edited.device if any(isinstance(edit, ChangeDevice) for edit in edits) else device
    own = tuple(RankMemory(planned_peak(tensors), None, _capacity(device)) for tensors in rank_tensors(after))
    return replace(given, whatif=replace(given.whatif, prediction=replace(edited, peak_memory=own)))


def _edited_plan(plan: Plan, edits: Sequence[Edit]) -> Plan | None:
    """The plan that states the edits; None: its keys do not."""
    from gnnperf import whatif
    from gnnperf.generate import TransformerPlan
    from gnnperf.memory import TIME_ONLY

    for edit in edits:
        if isinstance(plan, TransformerPlan) and isinstance(edit, whatif.ScaleBatch):
            schedule = plan.schedule
            micro, step = float(schedule.micro_batch * edit.factor), float(schedule.global_batch * edit.factor)
            if not (micro.is_integer() and step.is_integer()):
                return None
            plan = replace(plan, schedule=replace(schedule, micro_batch=int(micro), global_batch=int(step)))
        elif not isinstance(edit, TIME_ONLY):
            return None
    return plan


def _peak(tensors: RankTensors, estimate: StepPrediction) -> PeakMemory:
    """The peak of a rank, the interval of the allocator, and what is there as its kernels run."""
    from gnnperf.memory import most_reserved_bytes, planned_peak, planned_timeline

    nodes = estimate.prediction.graph.nodes
    own = (nodes["rank"] == tensors.rank) & (nodes["node_type"] == NodeType.COMPUTE)
    rows = np.flatnonzero(own.to_numpy())
    ops = nodes["op_name"].iloc[rows].astype(str).tolist()
    over_time = planned_timeline(tensors, ops, estimate.schedule.start_us[rows].tolist())
    return replace(planned_peak(tensors), most_reserved_bytes=most_reserved_bytes(tensors), timeline=over_time)


def _traced(estimate: StepPrediction, request: Request, device: DeviceSpec | None) -> StepPrediction:
    from gnnperf.memory import measured_peaks

    same = device is None or not request.hardware or device.name == estimate.traced_hardware
    same |= estimate.measured_step_time_us is not None
    on_gpu = None if same or device is None else device.kind == "gpu"
    ahead = _AHEAD.get()
    peaks = ahead() if ahead else _peaks(estimate.prediction.graph.fingerprint, estimate.label.name, request, on_gpu)
    if peaks is None:
        return replace(estimate, notes=(*estimate.notes, NO_SHAPES))
    measured = measured_peaks(run_card(Path(str(request.trace)))) if same else {}
    result = tuple(RankMemory(peak, measured.get(peak.rank), _capacity(device)) for peak in peaks)
    sentences = [] if same or device is None else [OTHER_DEVICE.format(device.name)]
    if measured and estimate.measurements is not None and len(set(estimate.measurements.shapes.values())) > 1:
        sentences.append(OTHER_SHAPES)
    given = replace(estimate, peak_memory=result, notes=(*estimate.notes, *sentences))
    return given if given.whatif is None else _edited(given, request, device, on_gpu)


def _peaks(fingerprint: str, step: str, request: Request, on_gpu: bool | None, variant: Variant | None = None) -> Peaks:
    """As recorded or of a known change."""
    from gnnperf.memory import AS_RECORDED, cached_peaks

    read = partial(_run, fingerprint, step, request)
    return cached_peaks(read, request.cache_folder, fingerprint, batches_held=request.batches_held, on_gpu=on_gpu,
                        step=step, variant=variant or AS_RECORDED)  # fmt: skip


def _peaks_ahead(fingerprint: str, step: str, request: Request) -> Peaks:
    from gnnperf.memory import without_compiler

    without_compiler()
    return _peaks(fingerprint, step, request, None)


def _run(fingerprint: str, step: str, request: Request) -> RunTrace:
    return load_step((Path(str(request.trace)),), request.recording, request.chosen, fingerprint, step)


def _edited(
    estimate: StepPrediction, request: Request, device: DeviceSpec | None, on_gpu: bool | None
) -> StepPrediction:
    from gnnperf.memory import memory_edits
    from gnnperf.predict.whatif import written

    runs_on_gpu = estimate.prediction.graph.runs_on_gpu if on_gpu is None else on_gpu
    edits = memory_edits(estimate.prediction.graph, request.edits(), on_gpu=runs_on_gpu)
    without = "shown is that without this edit" if edits.variant is not None else "none is shown"
    unknown = (*(f"peak memory with {written(edit)}; {without}" for edit in edits.left_out), *edits.unknown)
    estimate = replace(estimate, notes=(*(f"What if: not known is {one}." for one in unknown), *estimate.notes))
    if edits.variant is None:
        return estimate
    graph, step = estimate.prediction.graph, estimate.label.name
    peaks = _peaks(graph.fingerprint, step, request, on_gpu, edits.variant)
    assert peaks is not None, "the unedited step has peaks"
    result = tuple(RankMemory(peak, None, _capacity(device)) for peak in peaks)
    assert estimate.whatif is not None, "chosen so"
    whatif = replace(estimate.whatif, prediction=replace(estimate.whatif.prediction, peak_memory=result))
    return replace(estimate, whatif=whatif)
