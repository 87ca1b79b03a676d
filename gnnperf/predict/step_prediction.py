"""StepPrediction: one step, the value that the report package takes, its provenance, measurements of its trace."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gnnperf import __version__
from gnnperf.core import NodeType, StepTimeKind, files
from gnnperf.graph import ExecutionGraph, Prediction, ProfilerCost, StepLabel, content_keys
from gnnperf.hardware import DeviceSpec
from gnnperf.predict.request import Mode, Profiler, Request, TraceEvidence
from gnnperf.schedule import OUTLIER, MeasuredStep, Schedule, step_us
from gnnperf.trace import file_names

LEAST_STEPS = 3  # fewer do not say which one is odd
LEAST_CALLS = 8  # of a class; fewer have no quantiles
LEVEL = 0.9
# What makes two nodes one class; the launch configuration is of kernels only.
CLASS = ("node_type", "segment", "op_name", "event_name", "input_dims", "dtype", "message_bytes", "group_size", "phase",
         "stream", "grid", "block", "registers", "shared_bytes")  # fmt: skip
COPY = (
    "The step time is rebuilt from the step's own measured latencies: it checks the graph and is no forecast "
    "(evidence=other_steps forecasts, evidence=none predicts blind)."
)
FORECAST = "The step time is a forecast from the measured latencies of step {}."
REMOVED = "Host work is shortened by the profiler's own cost (profiler=remove); steps measured in the trace contain it."
STALLS = "{stalls} {ms:.1f} ms in this step, as measured (stalls=remove predicts without them)."


def outlier_steps(steps: Sequence[StepLabel]) -> frozenset[int]:
    """Ordinals of steps that take OUTLIER times the median step, or its inverse; none of fewer than LEAST_STEPS."""
    times_us = np.array([step_us(step) for step in steps])
    if len(steps) < LEAST_STEPS or not np.isfinite(times_us).all():
        return frozenset()
    away = np.abs(np.log(np.maximum(times_us, 1e-9) / np.median(times_us))) > np.log(OUTLIER)
    return frozenset(step.step for step, odd in zip(steps, away, strict=True) if odd)


@dataclass(frozen=True)
class TraceMeasurements:
    """What a trace measured, over all of its steps and ranks."""

    graph: ExecutionGraph  # of the trace, with labels

    @property
    def steps_us(self) -> dict[int, float]:
        """Step -> its measured time (`step_us`)."""
        return {step.step: step_us(step) for step in self.graph.steps}

    @cached_property
    def outliers(self) -> frozenset[int]:
        """Steps that are far from the others (`outlier_steps`), and from those of their own shapes."""
        rows = pd.DataFrame({"us": self.steps_us, "shapes": self.shapes})
        of_shapes = rows.groupby("shapes")["us"]
        away = np.abs(np.log(rows["us"].clip(lower=1e-9) / of_shapes.transform("median"))) > np.log(OUTLIER)
        blocks = (rows["shapes"] != rows["shapes"].shift()).cumsum()  # a warm-up with ops of its own does not return
        returns = blocks.groupby(rows["shapes"]).transform("nunique") > 1
        like = of_shapes.transform("size")
        is_usual = ~away & (like > 1) & (returns | (like >= len(rows) / 4))
        return outlier_steps(self.graph.steps) & set(rows.index[~is_usual])

    @cached_property
    def shapes(self) -> dict[int, int]:
        """Step -> number of its set of shapes, from 0 in order of appearance: inputs of all work on devices."""
        nodes = self.graph.nodes
        on_device = nodes["node_type"].isin((NodeType.COMPUTE, NodeType.MEMORY)).to_numpy()
        works = nodes[["op_name", "input_dims", "step"]][on_device]
        calls = works.groupby(["op_name", "input_dims"], observed=True, dropna=False, sort=False).ngroup().to_numpy()
        sums = pd.Series(pd.util.hash_array(calls), works["step"].to_numpy()).groupby(level=0).sum()
        numbers, _ = pd.factorize(sums.reindex([step.step for step in self.graph.steps], fill_value=0))
        return {step.step: int(number) for step, number in zip(self.graph.steps, numbers, strict=True)}

    @cached_property
    def classes(self) -> pd.DataFrame:
        """One row per class of nodes: columns of CLASS, num_calls, and low_us and high_us (quantiles of LEVEL).

        Host segments T1 to T5, kernels, copies, arrivals, exits and transfers are all nodes. The index holds their
        `content_keys`.
        """
        nodes = self.graph.nodes
        rows = np.flatnonzero(nodes["latency_us"].notna().to_numpy())
        number, keys = pd.factorize(content_keys(nodes, CLASS)[rows])  # [num_measured], [num_classes]
        first = rows[np.flatnonzero(np.diff(np.maximum.accumulate(number), prepend=-1))]  # node of each class
        us = nodes["latency_us"].iloc[rows].groupby(number)
        low, high = us.quantile((1 - LEVEL) / 2), us.quantile((1 + LEVEL) / 2)
        table = nodes[[*CLASS]].iloc[first].assign(num_calls=np.bincount(number), low_us=low.array, high_us=high.array)
        return table.set_axis(keys)

    def bounds_us(self, nodes: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """[num_nodes] quantiles of LEVEL of each node's class; NaN where it has fewer than LEAST_CALLS measurements.

        The nodes are of the trace's graph, or of one step of it.
        """
        known = self.classes[self.classes["num_calls"] >= LEAST_CALLS]
        place = known.index.get_indexer(pd.Index(content_keys(nodes, CLASS)))  # [num_nodes] -1 unknown
        low_us, high_us = (np.append(known[name].to_numpy(), np.nan)[place] for name in ("low_us", "high_us"))
        return low_us, high_us


def evidence_name(measured: MeasuredStep | None) -> str:
    """What the provenance of a prediction states: the kind of measurements that it starts from."""
    if measured is None:
        return str(TraceEvidence.none)
    return str(TraceEvidence.other_steps if measured.from_other_steps else TraceEvidence.trace)


def trace_notes(measured: MeasuredStep | None, same_hardware: bool, profiler: Profiler) -> tuple[str, ...]:
    """Sentences on the measurements that a prediction starts from."""
    if measured is None:
        return ()
    stalls_us = measured.stalls_us
    count = int((stalls_us > 0).sum())
    named = f"{count} stall{' takes' if count == 1 else 's take'}"
    stalls = (STALLS.format(stalls=named, ms=stalls_us.sum() / 1e3),) if count else ()
    if profiler is Profiler.remove:
        stalls = (REMOVED, *stalls)
    if not same_hardware:
        return stalls
    made_of = FORECAST.format(measured.graph.steps[0].step) if measured.from_other_steps else COPY
    return (made_of, *stalls)


if TYPE_CHECKING:
    from gnnperf.memory import Measured, PeakMemory
    from gnnperf.predict.throughput import Throughput
    from gnnperf.whatif import Finding

TRANSFER = "transfer"  # evidence of a prediction for another machine, from measurements of the trace


@dataclass(frozen=True)
class WhatIfPrediction:
    """The same step with edits."""

    edits: tuple[str, ...]  # what was changed, in order
    prediction: StepPrediction  # the edited step, predicted as the unedited one; nothing measured belongs to it
    num_touched: int  # nodes that are new, or whose shapes, latency or waits an edit has set
    unknown: tuple[str, ...]  # sentences: what the edits cannot know
    result: tuple[str, ...] = ()  # sentences: what the edits found and did
    # lowest and highest step with edits / step without; None: unknown
    ratio_interval: tuple[float, float] | None = None
    # share of steps -> the time that they stay below, where steps differ; {}: they do not
    quantiles_us: Mapping[float, float] = field(default_factory=dict)

    @property
    def step_time_us(self) -> float:
        """Of the edited step, of the same kind as the unedited one."""
        return self.prediction.step_time_us


@dataclass(frozen=True)
class WithoutProfiler:
    """The step as it runs without the profiler that recorded the trace."""

    step_time_us: float  # predicted, of the same kind as the step's
    cost: ProfilerCost  # what the profiler takes per event
    measured_us: float | None  # median step that the recorder timed without it; None unknown
    is_removed: bool  # whether the prediction as a whole is without it (profiler=remove)

    @property
    def error(self) -> float | None:
        """Signed relative error; None without a measurement."""
        return None if self.measured_us is None else self.step_time_us / self.measured_us - 1.0


@dataclass(frozen=True)
class RankMemory:
    """Peak memory of one rank."""

    peak: PeakMemory  # predicted, with its parts
    measured: Measured | None  # what the recorder counted; None unknown
    # that the device predicted for has; None: a CPU, whose memory is not a rank's own, or unknown
    device_bytes: float | None = None

    @property
    def error(self) -> float | None:
        """Signed relative error of what the recorder counts; None without a measurement."""
        return None if self.measured is None else self.measured.error(self.peak)

    @property
    def fits(self) -> bool | None:
        """Whether the peak fits into the device; None: unknown, because the device or a part of the peak is."""
        if self.left_bytes is None or (self.left_bytes >= 0 and self.peak.missing):
            return None
        return self.left_bytes >= 0

    @property
    def left_bytes(self) -> float | None:
        """Of the device's memory; negative: it does not fit; None unknown."""
        return None if self.device_bytes is None else self.device_bytes - self.peak.peak_bytes


@dataclass(frozen=True)
class Question:
    """What was requested, and of what: everything about the prediction that no model decides."""

    label: StepLabel  # the measured step to compare with
    structure_step: int  # ordinal of the step whose nodes are predicted
    mode: Mode  # which predictors are used
    hardware: str  # predicted for
    cluster: str  # likewise; "" for replay
    traced_hardware: str  # the trace's own device ("" unknown)
    same_hardware: bool  # whether the measured step ran on `hardware`
    provenance: dict[str, Any]  # versions and hashes; never paths, user names or a trace's free-form metadata
    warnings: tuple[str, ...] = ()  # sentences that the user may have to act on, the most important first
    device: DeviceSpec | None = None  # the numbers of `hardware`; None: not known (replay)
    traced_device: DeviceSpec | None = None  # those of the trace's own device; None: not known
    notes: tuple[str, ...] = ()  # facts that need no action
    placement: str = ""  # ranks, nodes and cluster, as a sentence; "" replay
    from_trace: bool = False  # whether latencies start from measurements of the trace
    step_scale: float = 1.0  # what scheduled step times are multiplied by; 1 except for forecasts


@dataclass(frozen=True, kw_only=True)
class StepPrediction(Question):
    """The question, with latencies, schedule and step time of the step."""

    prediction: Prediction  # latencies per node of the step's graph (`prediction.graph`)
    schedule: Schedule  # what they make of the step
    step_time_kind: StepTimeKind  # period, makespan or window
    step_time_us: float  # the prediction, of this kind
    is_lower_bound: bool  # some work has no latency and is left out of step_time_us
    traced_step_time_us: float  # the measured value of the same kind, on `traced_hardware`
    # the same, but None where the prediction is for other hardware than the trace's
    measured_step_time_us: float | None
    rank_start_skew_us: float  # measured; a measured makespan contains it, a predicted one starts all ranks at once
    rank_step_time_us: dict[int, float]  # rank -> predicted completion since the start of the step
    # [num_nodes] time the critical path spends at each node (critical_time.py); sums to step_time_us
    critical_us: np.ndarray
    critical_delay_us: float  # part of it in which no node of the path runs (launch latencies, gaps on streams)
    source_share: dict[str, float]  # source -> share of the step time along the critical path
    # node type or peer_wait (for untraced ranks) -> share of the time on the path
    critical_path_share: dict[str, float]
    uncovered_ops: dict[str, int]  # op name -> number of nodes without a latency
    # their share of the trace's measured node time, 0 to 1; None unknown. They add nothing to the step time, so
    # `source_share` cannot show what is missing; this does.
    uncovered_measured_share: float | None
    # what edits make of this step; None: no edit was requested. Everything else is the unedited step.
    whatif: WhatIfPrediction | None = None
    peak_memory: tuple[RankMemory, ...] = ()  # per rank in the graph, of this step; () not requested or unknown
    # lowest and highest step time; None: there is none, and a warning states why
    step_time_interval_us: tuple[float, float] | None = None
    interval_level: float | None = None  # share of steps that lie within theirs; None without an interval
    findings: tuple[Finding, ...] | None = None  # what holds this step up, the largest gain first; None: not requested
    # [num_nodes] what the analytical model states the time of a compute node is made of most (kernels.Bound); None
    # where it does not know; None instead of all: which device it is was not requested
    bound: np.ndarray | None = None
    # the same step predicted the same way for the traced hardware, where the prediction starts from the trace and is
    # for other hardware; None else
    traced_prediction_us: float | None = None
    measurements: TraceMeasurements | None = None  # what the trace measured; None: a plan
    ratio_interval: tuple[float, float] | None = None  # lowest and highest `step_time_ratio`; None: unknown
    alternatives: tuple[StepPrediction, ...] = ()  # the step on every device, where several were requested
    throughput: Throughput | None = None  # rates, utilization and cost of the step; None: not requested
    # the step without the profiler; None: it changes little, or is unknown
    without_profiler: WithoutProfiler | None = None

    @property
    def step_time_ratio(self) -> float | None:
        """Step time / that predicted the same way for the traced hardware; None without one, or one of 0."""
        return self.step_time_us / self.traced_prediction_us if self.traced_prediction_us else None

    @property
    def step_time_error(self) -> float | None:
        """Signed relative error, predicted / measured - 1; None without a comparable measurement, or one of 0."""
        return self.step_time_us / self.measured_step_time_us - 1.0 if self.measured_step_time_us else None

    @property
    def whatif_difference_us(self) -> float | None:
        """Edited minus unedited step time; None without edits."""
        return None if self.whatif is None else self.whatif.step_time_us - self.step_time_us


LIBRARIES = ("numpy", "pandas", "pyarrow", "numba", "torch", "torch-geometric")


def provenance(
    request: Request,
    fingerprint: str,
    checkpoint_sha256: str | None = None,
    collectives: str | None = None,
    evidence: str | None = None,
) -> dict[str, Any]:
    """Versions and hashes; base names only, no paths, hosts, users or free-form metadata."""
    return {
        "gnnperf": __version__,
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES},
        "checkpoint_sha256": checkpoint_sha256,
        "measured_sha256": None if request.measured is None else files.sha256(Path(request.measured)),
        "graph_fingerprint": fingerprint,
        "collectives": collectives,
        "evidence": evidence,
        "input_sha256": {} if request.trace is None else input_sha256(Path(request.trace)),
    }


def input_sha256(inputs: Path) -> dict[str, str]:
    """File name (relative to the folder, if a folder was given) -> sha256, hidden files left out.

    Names are those that outputs may show (`trace.public_texts`).
    """
    folder, listed = inputs.parent, [Path(inputs.name)]
    if inputs.is_dir():
        folder, listed = inputs, sorted(p.relative_to(inputs) for p in inputs.rglob("*") if p.is_file())
    shown = [file for file in listed if not any(part.startswith(".") for part in file.parts)]
    return {name: files.sha256(folder / file) for name, file in zip(file_names(shown), shown, strict=True)}


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
