"""Kernels that are shorter than what it takes to issue them.

host     |T1|T2|-T4-|T3|T1|T2|-T4-|T3|       8 us per call
device           |k|             |k|         3 us per call
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gnnperf.core import NodeType
from gnnperf.whatif.chosen import ScaleNodes
from gnnperf.whatif.findings.finding import Suspect, Way
from gnnperf.whatif.findings.observed import Observed
from gnnperf.whatif.units import host_units, with_launched

MOST = 0.5  # share of the calls with kernels that are this small
SUSPICIOUS = 0.2  # share of the step that the host spends on issuing them, mean over ranks
REMEDY = "replay them as one CUDA graph, or have torch.compile fuse them; larger batches make them longer"


def launch_bound(step: Observed) -> list[Suspect]:
    """Most calls keep the device busy for less time than the host needs to issue them."""
    calls = _calls(step)
    small = calls[calls["device_us"] < calls["host_us"]]
    host_us = small["host_us"].sum() / max(len(step.graph.ranks), 1)
    if not len(small) or len(small) < MOST * len(calls) or host_us < SUSPICIOUS * step.step_time_us:
        return []
    counts = small["op"].value_counts().head(3)
    evidence = (
        f"{len(small):,} of {len(calls):,} calls with kernels keep the device busy for less time than the host: "
        f"{small['device_us'].median():.1f} us against {small['host_us'].median():.1f} us in the median",
        f"{host_us:,.0f} us of a rank's step go into issuing them (mean over ranks); most often "
        + ", ".join(f"{name} ({count:,})" for name, count in counts.items()),
    )
    nodes = np.flatnonzero(np.isin(step_units(step), small.index.to_numpy()) & step.on_host)
    edit = ScaleNodes(tuple(nodes.tolist()), (0.0,) * len(nodes))
    way = Way((edit,), f"no host time for these {len(small):,} calls (one graph launch in their stead)", at_most=True)
    return [Suspect("launch_bound", "kernels are too small for the host to keep up", evidence, REMEDY, (way,))]


def step_units(step: Observed) -> np.ndarray:
    """[num_nodes] number of the op call of each node on the host or launched from it; -1 none."""
    return with_launched(step.graph, host_units(step.graph))


def _calls(step: Observed) -> pd.DataFrame:
    """Calls that launch kernels whose latencies are known, by number: op, host_us, device_us."""
    unit = step_units(step)
    kernel = (step.kind == NodeType.COMPUTE) & (step.graph.nodes["stream"] >= 0).to_numpy() & (unit >= 0)
    device = pd.Series(step.latency_us[kernel]).groupby(unit[kernel]).sum()
    host = step.on_host & np.isin(unit, device.index.to_numpy())
    time_us = pd.Series(step.latency_us[host]).groupby(unit[host]).sum()
    op = pd.Series(step.op[kernel]).groupby(unit[kernel]).first()
    unknown = np.unique(unit[kernel & ~step.known])  # a kernel that nothing tells the latency of is not a small one
    op, device = op.drop(unknown), device.drop(unknown)
    return pd.DataFrame({"op": op, "device_us": device, "host_us": time_us.reindex(device.index, fill_value=0.0)})
