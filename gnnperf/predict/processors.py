"""Another processor than intervals were calibrated on: all CPUs are taken for the generic one, nobody else says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.gnn import Processor, as_processor, processors_of
from gnnperf.graph import Prediction
from gnnperf.hardware import ClusterSpec

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
    kept = named if isinstance(named, (list, tuple)) else ()
    found = [
        as_processor(one if isinstance(one, Mapping) else {"name": one}) for one in kept
    ]  # a name alone: an older one
    return tuple(one for one in found if one is not None)


def other_processor(trace: Path | None, theirs: Sequence[Processor]) -> str:
    """What to say where the trace's card names processors and no validation run ran on one of them; else "".

    Args:
        trace: what is asked about; None: a plan.
        theirs: of the validation runs; () unknown.

    Raises:
        InputError: the trace's card cannot be read.
    """
    ours = processors_of([trace]) if trace is not None and theirs else ()
    if not ours or any(one.may_be(other) for one in ours for other in theirs):
        return ""
    return OTHER.format(ours=", ".join(map(str, ours)), theirs=", ".join(map(str, theirs)))
