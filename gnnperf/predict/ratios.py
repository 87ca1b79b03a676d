"""How far predictions that start from a trace may be off: steps of the same run, edits of it, and other GPUs.

repeat       the step predicted for its own hardware, from measurements        by steps of public runs
edit         step with edits / step without                                    by pairs of recorded runs
link         the same, other links between ranks                               by pairs of recorded runs
cluster      the same, ranks on other nodes (with their links)                 by pairs of recorded runs
world_size   the same, other numbers of ranks                                  by pairs of recorded runs
gpu          step on other hardware / step predicted for the traced hardware   by calls that were measured on both GPUs
             the same, of GPUs with the same processors (H100, H200)           by programs that were recorded on both
host         host time on another host / predicted                             by ops that public traces share

An interval of a step or of a ratio is a factor of it; those of several kinds of edits add up in squares. On other
hardware, each node that the change concerns takes its lowest latency, then its highest, and both steps are scheduled:
the kernels of one GPU are off together. A step also repeats no better than `repeat`; both errors add up in squares.
Nodes that no closed form covers may be bound by arithmetic, bandwidth or launch, so their interval spans the three
ratios.
"""

from collections.abc import Collection, Mapping

import numpy as np

from gnnperf.core import NodeType, Source
from gnnperf.gnn import group_names, shipped_intervals
from gnnperf.graph import Prediction
from gnnperf.hardware import ClusterSpec, DeviceSpec

# Files of conf/analytic: errors of ratios of one call on two GPUs, the generation of the second left out; the same of
# two GPUs with the same processors, sums of a program's calls on H100 and H200, for all such pairs; errors of steps of
# the same run, and of the ratio that an edit makes.
RATIO_FILE, SIBLING_FILE, STEP_FILE = "gpu_ratio.yaml", "sibling_ratio.yaml", "step_ratio.yaml"
UNMODELED, REPEAT, EDIT, HOST = "unmodeled", "repeat", "edit", "host"
LINK, CLUSTER, WORLD_SIZE = "link", "cluster", "world_size"
SHARE, LARGEST = 0.2, 0.4  # of log(measured / closed form); of op tables: `research.benchmarks.generations --ratios`


def step_bounds(kinds: Collection[str], value: float) -> tuple[float, float]:
    """Lowest and highest step time or ratio; `kinds`: REPEAT, or those of the edits. 0 and infinity: not calibrated."""
    known = shipped_intervals(STEP_FILE).log_bounds
    bounds = np.array([known.get(kind, (-np.inf, np.inf)) for kind in kinds])  # [num_kinds, 2]
    low, high = (float(np.linalg.norm(clipped)) for clipped in (bounds.clip(max=0.0)[:, 0], bounds.clip(0.0)[:, 1]))
    return value * float(np.exp(-low)), value * float(np.exp(high))


def retained(residual: np.ndarray, share: float = SHARE) -> np.ndarray:
    """[n] what of a kernel's log(measured / closed form) on one GPU holds on another one; share 1: all.

    Closed forms miss most on one GPU only. A residual beyond LARGEST is rare in op tables: the kernel is another one
    than modeled, on every GPU.
    """
    return residual - (1.0 - share) * np.clip(residual, -LARGEST, LARGEST)


def ratio_bounds(prediction: Prediction, own: Prediction, traced: ClusterSpec, cluster: ClusterSpec) -> np.ndarray:
    """[2, num_nodes] lowest and highest factor of each latency after a change of hardware; 1: the measurement holds.

    The prediction is for `cluster`, from measurements on `traced`; `own` is the same for `traced`.
    """
    nodes = prediction.graph.nodes
    ratio = np.divide(prediction.latency_us, own.latency_us, out=np.ones(len(nodes)), where=own.latency_us > 0)
    alike = siblings(traced.device, cluster.device)
    log_bounds = shipped_intervals(SIBLING_FILE if alike else RATIO_FILE).log_bounds
    low, high = np.zeros(len(nodes)), np.zeros(len(nodes))  # logarithms
    measured = np.isin(prediction.source, (Source.TRACE, Source.SCALED))
    kind = nodes["node_type"].astype(str).to_numpy()
    changed = measured & ~np.isin(kind, (str(NodeType.HOST), str(NodeType.COMM))) & (ratio != 1.0)
    names = _groups(nodes["family"].astype(object).to_numpy(), nodes["dtype"].astype(object).to_numpy(), log_bounds)
    for name in np.unique(names[changed]):
        here = changed & (names == name)
        low[here], high[here] = log_bounds[name]
    scaled = changed & (prediction.source == Source.SCALED)
    if scaled.any():
        bound = np.log(bound_ratios(traced, cluster))[:, None] - np.log(ratio[scaled])  # [3, num_scaled]
        low[scaled] += np.minimum(bound.min(axis=0), 0.0)
        high[scaled] += np.maximum(bound.max(axis=0), 0.0)
    host = measured & (kind == str(NodeType.HOST))
    # Another GPU is in another machine, whose host is as fast as that of this one by name only.
    if traced.host is None or traced.host != cluster.host or traced.device != cluster.device:
        low[host], high[host] = shipped_intervals(STEP_FILE).log_bounds[HOST]
    return np.exp(np.stack([low, high]))


def siblings(one: DeviceSpec, other: DeviceSpec) -> bool:
    """Whether GPUs have the same processors (H100 and H200, all V100s): a closed form misses the same on both."""
    alike = one.architecture == other.architecture != "" and one.num_sms == other.num_sms
    return one == other or alike


def bound_ratios(traced: ClusterSpec, cluster: ClusterSpec) -> np.ndarray:
    """[3] time on `cluster` over time on `traced` of work that is bound by launch, bandwidth and arithmetic."""
    before, after = traced.device, cluster.device
    rates = [max(device.flops_per_s.values()) for device in (before, after)]
    bandwidth = before.memory_bandwidth_bytes_per_s / after.memory_bandwidth_bytes_per_s
    return np.array([1.0, bandwidth, rates[0] / rates[1]])


def _groups(family: np.ndarray, dtype: np.ndarray, known: Mapping[str, object]) -> np.ndarray:
    """[num_nodes] group of each node, the finest that is known: family and dtype, family, UNMODELED."""
    result = np.full(len(family), UNMODELED, dtype=object)
    for names in (family, group_names(family, dtype)):  # the finer one replaces the coarser one
        has = np.isin(names.astype(str), list(known))
        result[has] = names.astype(str)[has]
    return result
