"""Another processor than all training runs ran on: every CPU is taken for the generic one, so nobody else would say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnperf.data.processors import processors_of
from gnnperf.graph.execution_graph import ExecutionGraph
from gnnperf.hardware.spec import ClusterSpec
from gnnperf.prediction import Prediction, Predictor

OTHER = (
    "The trace ran on {ours}, the checkpoint was last trained on runs on {theirs}: what another processor changes it "
    "does not know, so there is no interval. Eight or more runs of yours can train it on (experiment=fine_tune)."
)


@dataclass(frozen=True)
class WithoutIntervals:
    """A predictor whose intervals were calibrated on other processors, and are left out.

    Attributes:
        predictor: who answers.
        said: the warning that goes with every answer.
    """

    predictor: Predictor
    said: str

    def predict(self, graph: ExecutionGraph, cluster: ClusterSpec) -> Prediction:
        """The predictor's answer, with no bounds on any node."""
        answer = self.predictor.predict(graph, cluster)
        unknown = np.full_like(answer.latency_us, np.nan)  # [num_nodes]
        warnings = (*answer.warnings, self.said)
        return replace(answer, latency_low_us=unknown, latency_high_us=unknown, warnings=warnings)


def learned_on(provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """The processors of a checkpoint's training runs; () unknown, as of checkpoints made before this was kept."""
    training = provenance.get("training")
    named = training.get("processors") if isinstance(training, Mapping) else None
    return tuple(map(str, named)) if isinstance(named, (list, tuple)) else ()


def other_processor(trace: Path | None, theirs: tuple[str, ...]) -> str:
    """What to say where the trace's card names processors and no training run ran on one of them; else "".

    Args:
        trace: what is asked about; None: a plan.
        theirs: of the training runs; () unknown.

    Raises:
        InputError: the trace's card cannot be read.
    """
    ours = processors_of([trace]) if trace is not None and theirs else ()
    return OTHER.format(ours=", ".join(ours), theirs=", ".join(theirs)) if ours and not set(ours) & set(theirs) else ""
