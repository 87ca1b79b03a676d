"""What predict() is asked, and which requests contradict themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnperf.core import InputError
from gnnperf.generate import Plan
from gnnperf.hardware import ClusterSpec, DeviceSpec
from gnnperf.predict.config import Mode, Stalls, TraceEvidence
from gnnperf.predict.jitter import check_jitter
from gnnperf.predict.target import check_collective_models
from gnnperf.whatif import Edit

USES_CHECKPOINT = USES_HARDWARE = (Mode.gnn, Mode.hybrid, Mode.analytic)


@dataclass(frozen=True)
class MemoryQuestion:
    """What is asked of memory.

    Attributes:
        batches_held: batches like the step's own that the program keeps between steps.
    """

    batches_held: int = 1


@dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
        trace: trace file, directory of rank files, or archive; None: a plan is asked about.
        mode: who answers.
        hardware: device to predict for; None: the trace's own.
        cluster: links and hosts to predict for; None: the default of the device.
        collectives: laws of collectives by name or path; SPECIFICATION: none; None: as the cluster says.
        checkpoint: trained model; None: mode=hybrid uses the analytical model.
        measured: op table of the user's own, which answers first and corrects calls like its own; None: none.
        evidence: what is taken from the measurements of the trace.
        stalls: whether measured stalls stay.
        bucket_bytes: of the token bucket that limits the trace's links, where its card names their rate only.
        step: ordinal in the window; None: the one with the median measured step time.
        cache_dir: where graphs are kept; None: nowhere.
        whatif: edits of the step, made one after the other; both steps are predicted.
        plan: a step that nobody ran; None: a trace is asked about.
        memory: what is asked of peak memory; None: nothing.
        jitter: how much equal ranks differ, as predict.jitter reads it; None: not at all.
        findings: whether it is looked for what holds the step up.
    """

    trace: Path | None = None
    mode: Mode = Mode.hybrid
    hardware: DeviceSpec | None = None
    cluster: ClusterSpec | None = None
    collectives: str | None = None
    checkpoint: Path | None = None
    measured: Path | None = None
    evidence: TraceEvidence = TraceEvidence.auto
    stalls: Stalls = Stalls.keep
    bucket_bytes: float | None = None
    step: int | None = None
    cache_dir: Path | None = None
    whatif: tuple[Edit, ...] = ()
    plan: Plan | None = None
    memory: MemoryQuestion | None = None
    jitter: Any = None
    findings: bool = False


def check(request: Request) -> None:
    """Refuse a request that contradicts itself, before any file is read.

    Raises:
        InputError: naming the key.
    """
    if request.plan is not None:
        _check_plan(request)
    elif request.trace is None:
        raise InputError("a value is required", where="trace", remedy="pass trace=PATH, or plan=NAME and hardware=NAME")
    elif not request.trace.exists():
        raise InputError("no such file or directory", where=str(request.trace), remedy="check trace=PATH")
    if request.mode is Mode.gnn and request.checkpoint is None:
        raise InputError(
            "mode=gnn needs a checkpoint", where="checkpoint", allowed="the path of a trained model",
            remedy="train one with train.py and pass checkpoint=FILE, or use mode=hybrid or mode=analytic",
        )  # fmt: skip
    _only_in(USES_CHECKPOINT, "checkpoint", request)
    _only_in((Mode.hybrid,), "measured", request)
    _check_evidence(request)
    _only_in(USES_HARDWARE, "hardware", request)
    _only_in(USES_HARDWARE, "cluster", request)
    _only_in(USES_HARDWARE, "collectives", request)
    _only_in(USES_HARDWARE, "jitter", request)
    _only_in(USES_HARDWARE, "bucket_bytes", request)
    _check_bucket(request)
    check_collective_models(request.collectives)
    check_jitter(request.jitter)
    if request.whatif and request.mode is Mode.replay:
        raise InputError("mode=replay knows measured latencies only, edits need a model", where="whatif",
                         allowed="mode=hybrid, gnn, analytic")  # fmt: skip
    if request.checkpoint is not None and not request.checkpoint.is_file():
        raise InputError("no such file", where=str(request.checkpoint), remedy="check checkpoint=FILE")


def _check_bucket(request: Request) -> None:
    if request.bucket_bytes is None:
        return
    if not 0 < request.bucket_bytes < math.inf:
        raise InputError(f"bad value {request.bucket_bytes}", where="bucket_bytes",
                         allowed="a number above 0, or null for none")  # fmt: skip
    if request.plan is not None or request.cluster is not None:
        raise InputError("a cluster says what its links are", where="bucket_bytes",
                         allowed="cluster.inter.bucket_bytes beside cluster=")  # fmt: skip


def _check_evidence(request: Request) -> None:
    if request.evidence not in (TraceEvidence.trace, TraceEvidence.other_steps):
        return
    if request.plan is not None:
        raise InputError("a plan has no measurements", where="evidence", allowed="evidence=none")
    if request.mode is not Mode.hybrid:
        raise InputError(f"has no use in mode={request.mode}", where="evidence", allowed="mode=hybrid")
    if request.jitter is not None:
        raise InputError("measured steps hold the differences between ranks already", where="jitter",
                         allowed="evidence=none with jitter=")  # fmt: skip


def _check_plan(request: Request) -> None:
    if request.trace is not None:
        raise InputError("a trace is asked about as well", where="plan", allowed="one of trace and plan")
    if request.mode is Mode.replay:
        raise InputError("mode=replay knows measured latencies only, a plan has none", where="plan",
                         allowed="mode=hybrid, gnn, analytic")  # fmt: skip
    if request.hardware is None:
        raise InputError("a plan does not say which device it runs on", where="hardware", remedy="pass hardware=NAME")


def _only_in(modes: tuple[Mode, ...], key: str, request: Request) -> None:
    """Refuse `key` where the mode would ignore it."""
    if getattr(request, key) is not None and request.mode not in modes:
        raise InputError(f"has no use in mode={request.mode}", where=key, allowed=f"mode={', '.join(modes)}")
