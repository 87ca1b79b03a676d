"""From what a user configured to what is requested."""

from __future__ import annotations

from pathlib import Path

from gnnperf.core import InputError
from gnnperf.predict.request import MemoryQuestion, PredictConfig, Request
from gnnperf.predict.whatif import read_edits


def to_request(config: PredictConfig) -> Request:
    """The same wishes with paths as paths, specifications read, edits made.

    Raises:
        InputError: a value that hardware, cluster, plan or an edit does not have.
    """
    if config.hosts is not None:
        raise InputError(
            f"hosts={config.hosts} was replaced", where="hosts", allowed="evidence=trace, other_steps or none",
            remedy="use evidence=trace (the default): host work, and all other work, is taken from the trace",
        )  # fmt: skip
    return Request(
        trace=None if config.trace is None else Path(config.trace),
        plan=config.requested_plan(),
        mode=config.mode,
        hardware=config.device_spec(),
        cluster=config.cluster_spec(),
        collectives=config.collectives,
        checkpoint=None if config.checkpoint is None else Path(config.checkpoint),
        measured=None if config.measured is None else Path(config.measured),
        evidence=config.evidence,
        stalls=config.stalls,
        bucket_bytes=config.bucket_bytes,
        step=config.step,
        cache_dir=None if config.cache_dir is None else Path(config.cache_dir).expanduser(),
        whatif=read_edits(config.whatif),
        jitter=config.jitter,
        findings=config.findings,
        memory=MemoryQuestion(config.batches_held) if config.memory else None,
    )
