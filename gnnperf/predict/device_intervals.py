"""Bounds of kernels on a GPU that nobody calibrated: what answers missed on generations that were left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnperf.analytic.kernels.dispatch import has_forms
from gnnperf.core.schema import NodeType, Source
from gnnperf.gnn.intervals.device_file import shipped_device_intervals
from gnnperf.gnn.intervals.devices import DeviceIntervals
from gnnperf.graph.prediction import Prediction
from gnnperf.hardware.spec import ClusterSpec

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

    def __call__(self, prediction: Prediction, cluster: ClusterSpec) -> Prediction:
        """Bounds for kernels that have none, and a sentence that names their origin."""
        kernels = (prediction.graph.nodes["node_type"] == NodeType.COMPUTE).to_numpy()  # [num_nodes]
        asked = np.flatnonzero(kernels & np.isnan(prediction.latency_low_us) & np.isin(prediction.source, MODELS))
        if not has_forms(cluster.device) or not len(asked):
            return prediction
        intervals = self.intervals or shipped_device_intervals()
        nodes = prediction.graph.nodes.iloc[asked]
        family, dtype = (nodes[name].astype(object).to_numpy() for name in ("family", "dtype"))
        bounds = intervals.bounds_us(family, dtype, prediction.latency_us[asked])
        low_us, high_us = prediction.latency_low_us.copy(), prediction.latency_high_us.copy()
        low_us[asked], high_us[asked] = bounds
        told = int(np.isfinite(bounds[0]).sum())
        said = SAID.format(device=cluster.device.name, told=told, every=int(kernels.sum()),
                           count=len(intervals.generations), level=intervals.level)  # fmt: skip
        warnings = (*prediction.warnings, said) if told else prediction.warnings
        return replace(prediction, latency_low_us=low_us, latency_high_us=high_us, warnings=warnings)
