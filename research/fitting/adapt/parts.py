"""The parts of a step that a factor of their own moves: few, each one physical reason to be off.

How far a factor usually is from 1 is known before any label: from what the analytical model misses on programs, GPUs
and links that it was not fitted on (BENCHMARKS.md). Gaps are the exception: an estimate of 2 us, which a profiler that
lets one kernel run at a time makes ten times as long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.graph import ExecutionGraph
from research.fitting.adapt.path_time import PartOf

COLLECTIVE_CALLS = "c10d::"  # torch's namespace of them
STREAM_LAG = "stream"  # class of edges between neighbors on a stream


@dataclass(frozen=True)
class Part:
    """One part of a step.

    Attributes:
        name: of the part.
        why: what its factor stands for.
        spread: standard deviation of the factor's logarithm that is usual where nothing was measured.
    """

    name: str
    why: str
    spread: float


PARTS = (
    Part("host", "another processor, and frames around ops that a plan does not have", 0.4),
    Part("calls", "what a call of the collective library costs its host", 0.4),
    Part("kernels", "rates that this device and its libraries sustain", 0.15),
    Part("transfers", "rates and latencies that its links sustain", 0.15),
    Part("gaps", "what lies between two kernels of a stream", 1.0),
)
HOST, CALLS, KERNELS, TRANSFERS, GAPS = range(len(PARTS))
NO_PART = -1
_OF_TYPE = {
    NodeType.HOST: HOST, NodeType.COMPUTE: KERNELS, NodeType.MEMORY: KERNELS, NodeType.COMM: TRANSFERS,
    NodeType.COLLECTIVE: TRANSFERS,
}  # fmt: skip


def parts_of(graph: ExecutionGraph) -> PartOf:
    """The place in PARTS of every node and edge; hardware and other lags belong to none."""
    lags = graph.edges["lag_class"].astype(object).fillna("").to_numpy()
    return PartOf(_node_parts(graph.nodes), np.where(lags == STREAM_LAG, GAPS, NO_PART))


def _node_parts(nodes: pd.DataFrame) -> np.ndarray:
    types = nodes["node_type"].to_numpy().astype(str)
    result = np.full(len(nodes), NO_PART)
    for node_type, part in _OF_TYPE.items():
        result[types == str(node_type)] = part
    calls = nodes["op_name"].astype(object).fillna("").astype(str).str.startswith(COLLECTIVE_CALLS).to_numpy(bool)
    result[(result == HOST) & calls] = CALLS
    return result
