"""Bounds of kernels on a GPU that nobody calibrated: what answers missed on generations that were left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.analytic import has_forms
from gnnperf.core import NodeType, Source
from gnnperf.gnn import DeviceIntervals, shipped_device_intervals
from gnnperf.graph import Prediction
from gnnperf.hardware import ClusterSpec

MODELS = (Source.ANALYTIC, Source.GNN, Source.GNN_CALIBRATED)  # what was measured or declared was not left out
SAID = (
    "No answer was calibrated on {device}: intervals ({level:.0%}) of {told:,} of {every:,} kernels follow from what "
    "answers missed on {count} GPU generations that were left out one by one; all else has none."
)


@dataclass(frozen=True)
class UnseenDeviceBounds:
    """Intervals of kernels on GPUs that no checkpoint was calibrated on.

    Attributes:
        intervals: errors on GPU generations that were left out; None: those that ship, read when they are needed.
    """

    intervals: DeviceIntervals | None = None

    def __call__(self, answer: Prediction, cluster: ClusterSpec) -> Prediction:
        """Bounds for kernels that have none, and a sentence that names their origin."""
        kernels = (answer.graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()  # [num_nodes]
        asked = np.flatnonzero(kernels & np.isnan(answer.latency_low_us) & np.isin(answer.source, MODELS))
        if not has_forms(cluster.device) or not len(asked):
            return answer
        intervals = self.intervals or shipped_device_intervals()
        nodes = answer.graph.nodes.iloc[asked]
        family, dtype = (nodes[name].astype(object).to_numpy() for name in ("family", "dtype"))
        bounds = intervals.bounds_us(family, dtype, answer.latency_us[asked])
        low_us, high_us = answer.latency_low_us.copy(), answer.latency_high_us.copy()
        low_us[asked], high_us[asked] = bounds
        told = int(np.isfinite(bounds[0]).sum())
        said = SAID.format(device=cluster.device.name, told=told, every=int(kernels.sum()),
                           count=len(intervals.generations), level=intervals.level)  # fmt: skip
        warnings = (*answer.warnings, said) if told else answer.warnings
        return replace(answer, latency_low_us=low_us, latency_high_us=high_us, warnings=warnings)
