"""What predict.py can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gnnperf.core import require
from gnnperf.generate import Plan, read_plan
from gnnperf.hardware import HardwareConfig


class Mode(StrEnum):
    """Who answers. Names are lower case because that is how Hydra spells an enum on the command line."""

    hybrid = "hybrid"  # per node the best answer there is: measured, gnn, blended, analytic, else uncovered
    gnn = "gnn"  # the network alone; needs a checkpoint
    analytic = "analytic"  # the analytical model alone
    replay = "replay"  # measured class medians of other steps on the structure of one step


class TraceEvidence(StrEnum):
    """What the prediction takes from the measurements of its own trace (mode=hybrid)."""

    auto = "auto"  # as trace, unless jitter= asks for ranks that differ
    trace = "trace"  # the step's own latencies; edits and other hardware scale them by a model's ratio
    other_steps = "other_steps"  # those of another step: a forecast of the step, not a copy
    none = "none"  # nothing: a blind prediction


class Stalls(StrEnum):
    """What becomes of stalls that the trace measured."""

    keep = "keep"
    remove = "remove"  # a stalled node takes the median of its class


@dataclass
class FallbackConfig:
    """When to refuse (predict/fallback.py).

    Attributes:
        max_uncovered_share: of the trace's measured node time (of nodes, where nothing was measured) that may be
            without a latency; above it predict.py ends with exit code 3 and writes nothing. 1: never.
    """

    max_uncovered_share: float = 1.0

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        require(0 <= self.max_uncovered_share <= 1, "fallback.max_uncovered_share", self.max_uncovered_share, "0 to 1")


@dataclass
class PredictConfig(HardwareConfig):
    """Options of predict.py (not frozen: Hydra composes into it). Without `hardware` it is the trace's own device.

    A trace or a plan is asked about.

    Attributes:
        trace: trace file, directory of rank files, or archive; None: a plan is asked about.
        plan: a choice of conf/plan (or a YAML file of one's own) and its settings; empty: a trace is asked about.
        mode: who answers.
        checkpoint: trained model, of which mode=analytic takes the constants of the base only; None: mode=hybrid
            uses the analytical model.
        measured: table of ops measured on the device predicted for (`gnnperf calibrate --ops`), which answers first
            and corrects the answers for calls like its own; None: none.
        evidence: what the prediction takes from the measurements of its own trace.
        stalls: whether measured stalls stay; with measurements of the trace only.
        hosts: replaced by `evidence`.
        fallback: when too little is covered to answer.
        out: directory to write; None: outputs/predict/<run>-<mode>-<hardware>.
        collectives: laws of collectives, a name of conf/analytic/collective_laws or a .yaml file; "specification": none
            (links answer); None: as the cluster says.
        bucket_bytes: of the token bucket that limits the links of a trace whose card names their rate and no bucket, as
            data.bucket_bytes of train.py; None: they are taken to have none.
        step: ordinal of the step in the window; None: the one with the median measured step time.
        cache_dir: where graphs are kept, by fingerprint of code and input; None: nowhere.
        memory: whether peak memory per rank is told, too.
        batches_held: batches like the step's own that the program keeps between steps, in a loader's queue for example;
            a trace shows only the one that the step reads.
        findings: whether it is looked for what holds the step up; each candidate is predicted with its remedy.
        jitter: how much equal ranks differ; "trace": as its steps tell; numbers (predict/jitter.py); None: not at all.
        whatif: edits of the step, one after the other; its grammar is in predict/whatif.py.
        json: prediction.json goes to standard output, alone.
        quiet: nothing is printed but what is refused.
        max_step_ms: exit code 4 where the (unedited) step is predicted to take longer; None: never.
        max_regression: exit code 4 where it is predicted to be longer than that of `against` by more percent.
        against: what predict.py wrote before, a folder or a prediction.json.
    """

    trace: str | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    mode: Mode = Mode.hybrid
    checkpoint: str | None = None
    measured: str | None = None
    evidence: TraceEvidence = TraceEvidence.auto
    stalls: Stalls = Stalls.keep
    hosts: str | None = None
    fallback: FallbackConfig = field(default_factory=FallbackConfig)
    collectives: str | None = None
    out: str | None = None
    bucket_bytes: float | None = None
    step: int | None = None
    cache_dir: str | None = "~/.cache/gnnperf"
    memory: bool = True
    batches_held: int = 1
    findings: bool = True
    jitter: Any = None
    whatif: list[Any] = field(default_factory=list)
    json: bool = False
    quiet: bool = False
    max_step_ms: float | None = None
    max_regression: float | None = None
    against: str | None = None

    def requested_plan(self) -> Plan | None:
        """The plan asked about; None: a trace.

        Raises:
            InputError: a key or value that no plan has.
        """
        return read_plan(self.plan, "plan") if self.plan else None
