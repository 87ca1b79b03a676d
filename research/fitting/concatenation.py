"""Fit the instructions per element of torch's concatenations on public GPU traces that have shapes.

    GNNPERF_DATA_MIRROR=FOLDER python -m research.fitting.concatenation

prints the lane cycles that err least, and errors of each project with it left out, next to a plain stream. Errors are
|log(predicted / measured)| weighted by time; projects count equally.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from gnnperf.analytic.kernels.dispatch import has_forms
from gnnperf.analytic.kernels.launched import CAPPED
from gnnperf.analytic.kernels.nodes import distinct_calls
from gnnperf.analytic.memory_bound.calls import CONCATENATIONS
from gnnperf.analytic.memory_bound.constants import default_memory_constants
from gnnperf.analytic.memory_bound.streams import CONCATENATION, OTHER, elementwise_us
from gnnperf.core import NodeType
from gnnperf.hardware import match_device
from research.benchmarks._frame import run_main
from research.benchmarks.trace_evidence import gpu_recordings
from research.benchmarks.trace_kernels import project_of

DEFAULT_BYTES = 4.0  # of an element
STREAM = 0  # cycles: bytes only
CYCLES = tuple(range(5, 400, 5))


def measured() -> pd.DataFrame:
    """One row per concatenation: project, measured us, and a prediction for each of CYCLES and STREAM."""
    result = []
    constants = default_memory_constants()
    for name, graph in gpu_recordings():
        device = match_device(graph.device_names[0])
        nodes = graph.nodes[((graph.nodes["node_type"] == NodeType.COMPUTE) & (graph.nodes["bytes"] > 0)).to_numpy()]
        of_torch = nodes["op_name"].isin(CONCATENATIONS) & nodes["event_name"].astype(str).str.contains(CONCATENATION)
        nodes = nodes[(of_torch & (nodes["latency_us"] > 0)).to_numpy()]
        if nodes.empty or device is None or not has_forms(device):
            continue
        calls, code = distinct_calls(nodes)
        elements = np.array([call.moved_bytes / 2 / call.item_bytes for call in calls])[code]  # lists have no dtype
        items = nodes["event_name"].astype(str).str.extract(CAPPED)[1].astype(float)  # bytes: torch 2 states no type
        moved = 2 * elements * items.fillna(DEFAULT_BYTES).to_numpy()
        frame = pd.DataFrame({"project": project_of(name), "measured_us": nodes["latency_us"].to_numpy(float)})
        for each in (STREAM, *CYCLES):
            tried = replace(constants, lane_cycles={OTHER: each})
            frame[each] = elementwise_us(OTHER, elements, moved, device, tried)
        result.append(frame)
    return pd.concat(result, ignore_index=True)


def main() -> None:
    """Print."""
    rows = measured()
    shares = rows["measured_us"] / rows.groupby("project")["measured_us"].transform("sum")
    predicted = rows[[STREAM, *CYCLES]]
    logs = predicted.apply(np.log).sub(pd.Series(np.log(rows["measured_us"])), axis=0)
    biases, errors = (of.mul(shares, axis=0).groupby(rows["project"]).sum() for of in (logs, logs.abs()))
    tried = errors[list(CYCLES)]
    for project in tried.index:
        fitted = tried.drop(index=project).mean().idxmin()
        text = ", ".join(f"{label} {errors.loc[project, each]:.2f} ({biases.loc[project, each]:+.2f})"
                         for label, each in (("form", fitted), ("stream", STREAM)))  # fmt: skip
        print(f"{project:12s} left out: {fitted} cycles, error (bias): {text}")
    print(f"all: {tried.mean().idxmin()} cycles")


if __name__ == "__main__":
    run_main(main)
