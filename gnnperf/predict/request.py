"""What predict.py and `predict` are given, and which requests contradict themselves."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnperf.core import InputError, require
from gnnperf.hardware import PLAN_GROUP, DeviceSpec, HardwareConfig, closest, conf_dir, load_device
from gnnperf.predict.throughput import PriceConfig, RunConfig

if TYPE_CHECKING:
    from gnnperf.generate import Plan
    from gnnperf.trace import Selection
    from gnnperf.whatif import Edit

# Plans, edits and models are imported where a request names them: `predict.py --help` needs the keys only.


class Mode(StrEnum):
    """The predictors. Names are lower case because that is how Hydra spells an enum on the command line."""

    hybrid = "hybrid"  # per node the best prediction there is: measured, gnn, blended, analytic, else uncovered
    gnn = "gnn"  # the network by itself; needs a checkpoint
    analytic = "analytic"  # the analytical model by itself
    replay = "replay"  # measured class medians of other steps on the structure of one step


class TraceEvidence(StrEnum):
    """What the prediction takes from the measurements of its own trace (mode=hybrid)."""

    auto = "auto"  # as trace
    trace = "trace"  # the step's own latencies; edits and other hardware scale them by a model's ratio
    other_steps = "other_steps"  # those of another step: a forecast of the step, not a copy
    none = "none"  # nothing: a blind prediction


class Stalls(StrEnum):
    """What becomes of stalls that the trace measured."""

    keep = "keep"
    remove = "remove"  # a stalled node takes the median of its class


class Profiler(StrEnum):
    """What becomes of the time that the profiler itself took."""

    keep = "keep"
    remove = "remove"  # host work is shortened by the profiler's cost per event


@dataclass
class FallbackConfig:
    """When to refuse (predict/fallback.py)."""

    # of the trace's measured node time (of nodes, where nothing was measured) that may be without a latency; above it
    # predict.py ends with exit code 3 and writes nothing. 1: never.
    max_uncovered_share: float = 1.0

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(0 <= self.max_uncovered_share <= 1, "fallback.max_uncovered_share", self.max_uncovered_share, "0 to 1")


@dataclass
class Request(HardwareConfig):
    """What predict.py and `predict` are given (not frozen: Hydra composes into it). Either a trace or a plan.

    Hydra gives paths as text, and hardware, cluster, plan and edits as mappings; Python code may pass the values that
    these describe. `device_spec`, `cluster_spec`, `plan_spec` and `edits` read either form.

    Attributes:
        hardware: device to predict for, a choice of conf/hardware or a YAML file; empty: the trace's own.
        cluster: links and hosts to predict for, a choice of conf/cluster or a YAML file; empty: the device's default.
    """

    trace: Path | str | None = None  # trace file, directory of rank files, or archive; None: a plan is requested
    # which one of several in the folder of `trace`, from 1 in order of time; None: the only one
    recording: int | None = None
    ranks: Any = None  # of the trace that are read, such as 0-7,12; None: all
    steps: Any = None  # likewise, by the numbers of their marks, such as 3:6 (without 6); None: all
    # a choice of conf/plan (or a YAML file of one's own) and its settings; empty: a trace is requested
    plan: Any = field(default_factory=dict)
    # more devices, which are compared with `hardware` in one table: hardware=[h100_sxm,h200]
    other_hardware: list[Any] = field(default_factory=list)
    mode: Mode = Mode.hybrid  # which predictors are used
    # trained model, of which mode=analytic takes the constants of the base only; None: mode=hybrid uses the analytical
    # model
    checkpoint: Path | str | None = None
    # model trained with data.source_path: the step is predicted for the machine that it was trained on, from the
    # measurements of this trace of another machine; None: not
    transfer: Path | str | None = None
    # table of ops measured on the device predicted for (`gnnperf calibrate --ops`), which is used first and corrects
    # the predictions for calls like its own; None: none
    measured: Path | str | None = None
    evidence: TraceEvidence = TraceEvidence.auto  # what the prediction takes from the measurements of its own trace
    stalls: Stalls = Stalls.keep  # whether measured stalls stay; with measurements of the trace only
    profiler: Profiler = Profiler.keep  # whether the profiler's own cost stays; with measurements of the trace only
    fallback: FallbackConfig = field(default_factory=FallbackConfig)  # when too little is covered to predict
    # length of the training run, of which accelerator-hours and cost are given
    run: RunConfig = field(default_factory=RunConfig)
    price: PriceConfig = field(default_factory=PriceConfig)  # of a device
    # models of collectives, a name of conf/analytic/collective_models or a .yaml file; "specification": none (links are
    # used); None: as in the cluster
    collectives: str | None = None
    out: str | None = None  # directory to write; None: outputs/predict/<run>-<mode>-<hardware>
    tables: str | None = None  # directory for tables as CSV; None: none
    step: int | None = None  # ordinal of the step in the window; None: the one with the median measured step time
    # where graphs are kept, by fingerprint of code and input, and what ops do to memory; None: nowhere
    cache_dir: Path | str | None = None
    memory: bool = False  # whether peak memory per rank is given, too
    # batches like the step's own that the program keeps between steps, in a loader's queue for example; a trace shows
    # only the one that the step reads
    batches_held: int = 1
    # whether it is looked for what holds the step up; each candidate is predicted with its remedy
    findings: bool = False
    # edits of the step, one after the other; its grammar is in predict/whatif.py
    whatif: list[Any] = field(default_factory=list)
    json: bool = False  # prediction.json goes to standard output, by itself
    verbose: bool = False  # all warnings and notes are printed, not only the first warnings
    quiet: bool = False  # nothing is printed but what is refused
    max_step_ms: float | None = None  # exit code 4 where the (unedited) step is predicted to take longer; None: never
    # exit code 4 where it is predicted to be longer than that of `against` by more percent
    max_regression: float | None = None
    against: str | None = None  # what predict.py wrote before, a folder or a prediction.json

    @property
    def cache_folder(self) -> Path | None:
        """Where graphs and effects of ops are kept; None: nowhere."""
        return None if self.cache_dir is None else Path(self.cache_dir).expanduser()

    @property
    def chosen(self) -> "Selection":
        """Ranks and steps of the trace that are read."""
        from gnnperf.trace import selection

        return selection(self.ranks, self.steps)

    def plan_spec(self) -> "Plan | None":
        """The plan requested; None: a trace.

        Raises:
            InputError: a key or value that no plan has.
        """
        if not self.plan:
            return None
        from gnnperf.generate import Plan, read_plan

        return self.plan if isinstance(self.plan, Plan) else read_plan(self.plan, "plan")

    def every_hardware(self) -> "tuple[Request, ...]":
        """A request for each device of the table; () one device is requested.

        Raises:
            InputError: no such device.
        """
        if not self.other_hardware:
            return ()
        given = [one if isinstance(one, DeviceSpec) else load_device(str(one)) for one in self.other_hardware]
        plain = replace(self, other_hardware=[], whatif=[], findings=False, memory=False)
        return (plain, *(replace(plain, hardware=one) for one in given))

    def edits(self) -> "tuple[Edit, ...]":
        """The edits requested, in order.

        Raises:
            InputError: an entry is no edit.
        """
        if not self.whatif:
            return ()
        from gnnperf.predict.whatif import read_edits

        return read_edits(self.whatif)


ONE_OF = "one of trace and plan"
MODELS = (Mode.hybrid, Mode.gnn, Mode.analytic)
MODES_OF_KEY = {"measured": (Mode.hybrid,), "transfer": (Mode.hybrid,)} | dict.fromkeys(
    ("checkpoint", "hardware", "cluster", "collectives"), MODELS
)


def check(request: "Request") -> None:
    """Refuse a request that contradicts itself, before a trace is read.

    Raises:
        InputError: naming the key.
    """
    for read in (request.device_spec, request.cluster_spec, request.edits, request.every_hardware, request.plan_spec):
        read()  # each refuses what it cannot read
    if not request.plan:
        if request.trace is None:
            raise InputError("a value is required", where="trace",
                             remedy="name a trace (trace=PATH), or a plan and a device (--plan, --gpu)")  # fmt: skip
        if not os.path.exists(request.trace):  # False for names that no system takes
            raise _missing(request.trace, _nearest_plan(str(request.trace)))
    elif not request.hardware:
        raise InputError("a plan needs a device to run on", where="hardware",
                         remedy="pass --gpu NAME (predict.py: hardware=NAME)")  # fmt: skip
    if request.mode is Mode.gnn and request.checkpoint is None:
        raise InputError("mode=gnn needs a checkpoint", where="checkpoint", allowed="the path of a trained model",
                         remedy="train one with train.py and pass checkpoint=FILE, or use mode=hybrid or analytic",
                         )  # fmt: skip
    for contradicts, what, where, allowed in _contradictions(request):
        if contradicts:
            raise InputError(what, where=where, allowed=allowed)
    for key, modes in MODES_OF_KEY.items():
        if getattr(request, key) not in (None, {}) and request.mode not in modes:
            raise InputError(f"has no use in mode={request.mode}", where=key, allowed=f"mode={', '.join(modes)}")
    _check_run(request)
    if request.collectives is not None:
        from gnnperf.predict.target import check_collective_models

        check_collective_models(request.collectives)
    for key in ("checkpoint", "transfer"):
        file = getattr(request, key)
        if file is not None and not Path(file).is_file():
            raise _missing(file, f"check {key}=FILE")


def _missing(path: object, remedy: str) -> InputError:
    return InputError("no such file or directory", where=str(path), remedy=remedy)


def _nearest_plan(path: str) -> str:
    """What to do about a path that does not exist: the name of a plan is no path."""
    close = closest(path.removeprefix("plan="), (file.stem for file in conf_dir(PLAN_GROUP).glob("*.yaml")))
    plan = f", or request a plan: --plan {close[0]} (predict.py: plan={close[0]})" if close else ""
    return f"check the path{plan}"


def _contradictions(request: "Request") -> Iterator[tuple[object, str, str, str]]:
    """(whether it is one, what is wrong, its key, what is allowed), in the order in which they are refused."""
    mode, models = request.mode, f"mode={', '.join(MODELS)}"
    starts_from_trace = request.evidence in (TraceEvidence.trace, TraceEvidence.other_steps)
    yield request.plan and request.trace is not None, "a trace is requested as well", "plan", ONE_OF
    yield request.verbose and request.quiet, "quiet is requested as well", "verbose", "one of verbose and quiet"
    if mode is Mode.replay:
        yield request.plan, "mode=replay has measured latencies only, a plan has none", "plan", models
        yield request.whatif, "mode=replay has measured latencies only, edits need a model", "whatif", models
    if request.transfer is not None:
        for key in ("plan", "checkpoint", "other_hardware"):
            yield getattr(request, key), f"cannot be combined with {key}", "transfer", "trace= with transfer="
        blind = request.evidence in (TraceEvidence.none, TraceEvidence.other_steps)
        yield blind, "starts from the measurements of the trace", "evidence", "evidence=trace"
    if starts_from_trace:
        yield request.plan, "a plan has no measurements", "evidence", "evidence=none"
        yield mode is not Mode.hybrid, f"has no use in mode={mode}", "evidence", "mode=hybrid"
    if request.profiler is Profiler.remove:
        blind = request.evidence is TraceEvidence.none or request.transfer is not None
        yield request.plan, "a plan has no measurements", "profiler", "profiler=keep"
        yield blind, "has no use in a prediction without measurements of the trace", "profiler", "profiler=keep"
        yield mode is not Mode.hybrid, f"has no use in mode={mode}", "profiler", "mode=hybrid"


def _check_run(request: "Request") -> None:
    """Refuse a run in tokens or samples of which a step's share cannot become known; samples of a trace may."""
    from gnnperf.generate import StepWork

    known, plan = StepWork(samples=1.0), request.plan_spec()
    if plan is not None:
        from gnnperf.generate import step_work

        known = step_work(plan)
    request.run.num_steps(request.run.completed(known))
