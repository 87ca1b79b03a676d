"""StepPrediction: the prediction about one step, the value that the report package takes, and its provenance."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnperf import __version__
from gnnperf.core import StepTimeKind, files
from gnnperf.graph import Prediction, ProfilerCost, StepLabel
from gnnperf.hardware import DeviceSpec
from gnnperf.predict.measurements import TraceMeasurements
from gnnperf.predict.request import Mode, Request
from gnnperf.schedule import Schedule
from gnnperf.trace import file_names

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
