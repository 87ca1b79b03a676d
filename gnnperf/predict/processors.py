"""Processors: the catalog has one generic CPU, so that a checkpoint cannot tell two of them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnperf.evaluate.recordings import processor_of

OTHER = (
    "The trace ran on {ours}, the checkpoint learned from runs on {theirs}: what another processor changes is in no "
    "answer and in no interval. A few runs of yours can train it on (experiment=fine_tune)."
)


def processors_of(dataset: Path, recordings: Sequence[str]) -> list[str]:
    """The processors that the cards of these recordings name, once each; what a checkpoint keeps of them.

    Raises:
        InputError: a card cannot be read.
    """
    return sorted({name for recording in recordings if (name := processor_of(dataset / recording))})


def learned_on(provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """The processors of a checkpoint's training runs; () unknown, as of checkpoints made before this was kept."""
    return tuple(provenance.get("training", {}).get("processors", ()))


def other_processor(trace: Path | None, theirs: Sequence[str]) -> tuple[str, ...]:
    """A warning where the trace's card names a processor that no training run ran on.

    Args:
        trace: what is asked about; None: a plan.
        theirs: of the training runs; () unknown.

    Raises:
        InputError: the trace's card cannot be read.
    """
    ours = processor_of(trace) if trace is not None and theirs else ""
    return (OTHER.format(ours=ours, theirs=", ".join(theirs)),) if ours and ours not in theirs else ()
